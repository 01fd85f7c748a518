// What a step is said to have taken: seconds that add up and are those of other clocks, bytes that
// are those of the plan, a cost file and a trace.

#include "tools/run/measure/step_accounts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/comm/links/cluster.h"
#include "core/file_io.h"
#include "parallel/predict/timeline/chrome_trace.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/metrics_lines.h"
#include "tests/tools/run/training_run.h"
#include "tools/config/config_job.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/step_plan.h"

namespace slackline {

namespace {

using testing::require_done;

const std::vector<std::string> kMesh = {
    "parallel.tensor=2", "parallel.pipeline=2", "parallel.data=1", "run.steps=8", "trace=true"};

// What a rank did in a traced step: from the bars of trace.json.
struct TracedStep {
  double computed = 0.0;  // bars of the track "compute", without what lies under a bar of "waiting"
  double waited = 0.0;
};

using schedule::TraceBar;

double begin_of(const TraceBar& bar) {
  return bar.start.value;
}

double end_of(const TraceBar& bar) {
  return bar.start.value + bar.duration.value;
}

double overlap(const TraceBar& a, const TraceBar& b) {
  return std::max(0.0, std::min(end_of(a), end_of(b)) - std::max(begin_of(a), begin_of(b)));
}

// A rank's bars of one track in a step: those that end after the step before and by its own end.
std::vector<TraceBar> bars_of_step(const std::vector<TraceBar>& all,
                                   const std::string& track,
                                   const TraceBar& step,
                                   double end_of_step_before) {
  std::vector<TraceBar> bars;
  std::ranges::copy_if(all, std::back_inserter(bars), [&](const TraceBar& bar) {
    constexpr double kRounding = 5e-9;  // begin and duration are written in whole nanoseconds
    return bar.track == track && bar.rank == step.rank &&
           end_of(bar) > end_of_step_before + kRounding && end_of(bar) <= end_of(step) + kRounding;
  });
  return bars;
}

// Means over ranks of each traced step, by its bar on the track "step".
std::map<std::string, TracedStep> traced_steps(const std::vector<TraceBar>& bars, int num_ranks) {
  std::map<std::string, TracedStep> steps;
  std::map<int, double> ended;  // the step before, of each rank
  for (const TraceBar& step : bars) {
    if (step.track != "step") {
      continue;
    }
    const std::vector<TraceBar> waits = bars_of_step(bars, "waiting", step, ended[step.rank]);
    TracedStep& mean = steps[step.name];
    for (const TraceBar& wait : waits) {
      mean.waited += wait.duration.value / num_ranks;
    }
    for (const TraceBar& pass : bars_of_step(bars, "compute", step, ended[step.rank])) {
      double seconds = pass.duration.value;
      for (const TraceBar& wait : waits) {
        seconds -= overlap(pass, wait);
      }
      mean.computed += seconds / num_ranks;
    }
    ended[step.rank] = end_of(step);
  }
  return steps;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

Wait transfer(std::size_t axis, double submitted, double finished) {
  Wait wait{.axis = axis};
  wait.record.submitted = submitted;
  wait.record.finished = finished;
  return wait;
}

TrainConfig resolved_config(const TrainingRun& run) {
  return read_train_config(JsonReader::parse_file(run.run_dir() + "/config.resolved.json"));
}

}  // namespace

TEST_CASE("a step's seconds add up and its bytes are the plan's") {
  const TrainingRun run;
  REQUIRE(run.train(kMesh, {"--ranks", "4"}).exit_code == 0);
  const AxisBytes planned = read_step_plan(plan_job(resolved_config(run)), {}).step_bytes;
  const std::vector<nlohmann::json> lines = step_lines(run.run_dir());
  REQUIRE(lines.size() == 8);
  for (const nlohmann::json& line : lines) {
    INFO(line.dump());
    double sum = 0.0;
    for (const char* part : {"compute", "bubble", "exposed", "other"}) {
      REQUIRE(line["seconds"][part].get<double>() >= 0.0);
      sum += line["seconds"][part].get<double>();
    }
    // Written with all their digits, so only the sum of four rounds.
    REQUIRE(std::abs(sum - line["step_seconds"].get<double>()) < 1e-9);
    REQUIRE(line["axes"]["tensor"]["sent_bytes"] == planned[kTensorAxis]);
    REQUIRE(line["axes"]["pipeline"]["sent_bytes"] == planned[kPipelineAxis]);
    REQUIRE(line["axes"]["data"]["sent_bytes"] == planned[kDataAxis]);
    REQUIRE(line["axes"]["embedding"]["sent_bytes"] == planned[kEmbeddingAxis]);
    REQUIRE(planned[kPipelineAxis] > 0);
    REQUIRE(planned[kDataAxis] == 0);
    REQUIRE_FALSE(line["axes"]["data"].contains("across_bytes"));
  }
}

// Two groups of two data ranks, with a tied table on two stages.
TEST_CASE("what crosses between groups is counted, and is the plan's") {
  for (const char* collectives : {"direct", "hierarchical"}) {
    INFO(collectives);
    const TrainingRun run;
    const std::vector<std::string> assignments = {
        "parallel.pipeline=2",
        "parallel.data=4",
        "parallel.group=2",
        "parallel.data_strategy=zero1",
        "batch.micro=1",
        "run.steps=3",
        std::string("network.collectives=") + collectives};
    REQUIRE(run.train(assignments, {"--ranks", "8"}).exit_code == 0);
    const StepPlan plan = read_step_plan(plan_job(resolved_config(run)), {});
    const AxisBytes& planned = plan.step_bytes_across;
    REQUIRE(planned[kDataAxis] > 0);
    REQUIRE(planned[kEmbeddingAxis] > 0);
    // A slice of all or of a group's part crosses: 2 of 4 ranks against 1 of 2.
    const double share = std::string(collectives) == "direct" ? 2.0 / 3.0 : 1.0 / 3.0;
    CHECK(static_cast<double>(planned[kDataAxis]) ==
          Approx(share * static_cast<double>(plan.step_bytes[kDataAxis])));
    for (const nlohmann::json& line : step_lines(run.run_dir())) {
      INFO(line.dump());
      CHECK(line["axes"]["tensor"]["across_bytes"] == 0);
      CHECK(line["axes"]["pipeline"]["across_bytes"] == 0);
      CHECK(line["axes"]["data"]["across_bytes"] == planned[kDataAxis]);
      CHECK(line["axes"]["embedding"]["across_bytes"] == planned[kEmbeddingAxis]);
      CHECK(line["axes"]["data"]["sent_bytes"] == plan.step_bytes[kDataAxis]);
    }
  }
}

// The trace's bars are the times that ranks took; the accounts of a step have gone through other
// code, and through a sum over ranks.
TEST_CASE("a step's compute and waiting seconds are those of its trace") {
  const TrainingRun run;
  // Under zero1 ranks also wait for gathered weights within their passes.
  const std::vector<std::string> mesh = {"parallel.tensor=2",
                                         "parallel.pipeline=2",
                                         "parallel.data=2",
                                         "parallel.data_strategy=zero1",
                                         "batch.micro=2",
                                         "run.steps=4",
                                         "run.eval_every=0",
                                         "trace=true"};
  constexpr int kRanks = 8;
  REQUIRE(run.train(mesh, {"--ranks", std::to_string(kRanks)}).exit_code == 0);
  const std::map<std::string, TracedStep> traced =
      traced_steps(schedule::read_trace(run.run_dir() + "/trace.json"), kRanks);
  const std::vector<nlohmann::json> lines = step_lines(run.run_dir());
  for (const std::size_t step : {2U, 3U}) {
    const nlohmann::json& seconds = lines.at(step - 1)["seconds"];
    const TracedStep& found = traced.at("step " + std::to_string(step));
    INFO("step " << step << ": " << seconds.dump());
    // Bars are written to the nanosecond, some hundred of them a rank.
    constexpr double kRounding = 1e-6;
    CHECK(found.computed > 0.0);
    CHECK(seconds["compute"].get<double>() == Approx(found.computed).margin(kRounding));
    CHECK(seconds["bubble"].get<double>() + seconds["exposed"].get<double>() ==
          Approx(found.waited).margin(kRounding));
    CHECK(lines.at(step - 1)["step_seconds"].get<double>() >= found.computed + found.waited);
  }
}

// Two stages, two micro-batches; forward passes and messages take a unit of time, backward passes
// two:
//
//   time     0     1     2     3     4     5     6     7     8     9     10    11
//   stage 0  | F0  | F1  | peer computes   | link| B0        | link| B1        |
//   stage 1  | peer| link| F0  | B0        | F1  | B1        | link| peer      |
//
// Stage 0 waits 3 units for its peer and twice 1 for the link. Stage 1 waits 1 for its peer, 1 for
// the link, 1 until its last gradient has gone, and 2 until all agree.
TEST_CASE("a rehearsed step's compute, bubble and exposed seconds are those of its costs") {
  const TrainingRun run;
  constexpr double kUnit = 0.040;                    // seconds
  constexpr double kMessageBytes = 4 * 32 * 32 * 4;  // a micro-batch's tokens, channels, fp32
  write_file_atomically(run.path("links.json"),
                        nlohmann::json{{"nodes", {{{"count", 2}, {"devices", 1}}}},
                                       {"links",
                                        {{{"scope", "network"},
                                          {"latency_seconds", 1e-5},
                                          {"bytes_per_second", kMessageBytes / kUnit}}}}}
                            .dump());
  StepCosts costs;
  for (const int stage : {0, 1}) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {kUnit}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {2 * kUnit}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::optimizer, .seconds = {0.0}});
  }
  write_file_atomically(run.path("costs.json"), cost_file_text(costs));
  const std::vector<std::string> config = {"device=rehearsal",
                                           "rehearsal.costs=" + run.path("costs.json"),
                                           "data.train=[{\"path\": \"none\"}]",
                                           "model.tie_embeddings=false",
                                           "parallel.pipeline=2",
                                           "network.links=" + run.path("links.json"),
                                           "run.steps=7"};
  require_done(run.train(config, {"--ranks", "2"}));
  std::map<std::string, std::vector<double>> seconds;
  for (const nlohmann::json& line : step_lines(run.run_dir())) {
    for (const auto& [part, value] : line["seconds"].items()) {
      seconds[part].push_back(value.get<double>());
    }
  }
  // A busy machine wakes a rank some milliseconds late each time; the median of seven steps is off
  // by less than half of the shortest time that could be counted elsewhere.
  constexpr double kLate = kUnit / 2;
  CHECK(median(seconds["compute"]) == Approx(6 * kUnit).margin(kLate));
  CHECK(median(seconds["bubble"]) == Approx(3 * kUnit).margin(kLate));
  CHECK(median(seconds["exposed"]) == Approx(2 * kUnit).margin(kLate));
  CHECK(median(seconds["other"]) < kLate);
}

// Weights that zero1 gathers arrive long after the first forward pass has begun. That pass computes
// for a unit of time and waits for several.
TEST_CASE("a pass' cost has no wait for gathered weights in it, which a plan adds once") {
  const TrainingRun run;
  constexpr double kUnit = 0.020;  // seconds
  write_file_atomically(run.path("links.json"),
                        R"({"nodes": [{"count": 2, "devices": 1}],
  "links": [{"scope": "network", "latency_seconds": 0.02, "bytes_per_second": 4e5}]})");
  StepCosts costs;
  costs.ops.push_back({.kind = CostKind::forward, .seconds = {kUnit}});
  costs.ops.push_back({.kind = CostKind::backward, .seconds = {2 * kUnit}});
  costs.ops.push_back({.kind = CostKind::optimizer, .seconds = {0.0}});
  write_file_atomically(run.path("costs.json"), cost_file_text(costs));
  const std::vector<std::string> config = {"device=rehearsal",
                                           "rehearsal.costs=" + run.path("costs.json"),
                                           "data.train=[{\"path\": \"none\"}]",
                                           "parallel.data=2",
                                           "parallel.data_strategy=zero1",
                                           "network.links=" + run.path("links.json"),
                                           "run.steps=8"};
  require_done(run.train(config, {"--ranks", "2"}));
  std::vector<double> exposed;
  std::vector<double> steps;
  for (const nlohmann::json& line : step_lines(run.run_dir())) {
    exposed.push_back(line["axes"]["data"]["exposed_seconds"].get<double>());
    steps.push_back(line["step_seconds"].get<double>());
  }
  CHECK(median(exposed) > 4 * kUnit);
  const StepCosts measured = read_cost_file(run.run_dir() + "/costs.json");
  // A busy machine wakes a rank some milliseconds late; half a unit is less than any wait.
  CHECK(measured.of_stage(0, CostKind::forward)->value == Approx(kUnit).margin(kUnit / 2));
  const StepPlan plan = make_step_plan(
      plan_job(resolved_config(run)), measured, read_emulated_cluster(run.path("links.json")));
  // A gather that counted twice would be a third of the step.
  CHECK(plan.timeline.step.value == Approx(median(steps)).epsilon(0.15));
}

TEST_CASE("a run leaves a cost file that its own config can be planned with, and a trace") {
  const TrainingRun run;
  REQUIRE(run.train(kMesh, {"--ranks", "4"}).exit_code == 0);
  const StepCosts costs = read_cost_file(run.run_dir() + "/costs.json");
  for (const CostKind kind : {CostKind::forward, CostKind::backward, CostKind::optimizer}) {
    for (const int stage : {0, 1}) {
      REQUIRE(costs.of_stage(stage, kind).has_value());
      REQUIRE(costs.of_stage(stage, kind)->value > 0.0);
    }
  }
  const StepPlan plan = make_step_plan(plan_job(resolved_config(run)), costs, std::nullopt);
  REQUIRE(plan.has_measured_costs);
  REQUIRE(plan.timeline.step.value > 0.0);

  const nlohmann::json trace = nlohmann::json::parse(read_file(run.run_dir() + "/trace.json"));
  std::set<int> ranks;
  std::set<std::string> names;
  for (const nlohmann::json& event : trace.is_array() ? trace : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      ranks.insert(event["pid"].get<int>());
      names.insert(event["name"].get<std::string>());
      REQUIRE(event["ts"].get<double>() >= 0.0);
      REQUIRE(event["dur"].get<double>() >= 0.0);
    }
  }
  CHECK(ranks == std::set<int>{0, 1, 2, 3});
  CHECK(names.count("forward s0 m0") == 1);
  CHECK(names.count("backward s1 m0") == 1);
  CHECK(names.count("optimizer") == 1);
}

TEST_CASE("a round that nobody waited for has arrived with the last of its transfers") {
  constexpr std::size_t kData = 2;
  const RoundTravel seen{.sent = 10.0, .needed = 20.0, .arrived = 15.0};
  const auto corrected = [&](RoundTravel round, const std::vector<Wait>& transfers) {
    correct_arrival(round, transfers);
    return round.arrived;
  };
  const std::vector<Wait> own = {transfer(kOuterAxis, 9.9, 12.0), transfer(kOuterAxis, 9.9, 13.0)};
  CHECK(corrected(seen, own) == 13.0);
  // Not with those of another axis, and not with those of the round that the end sends itself.
  std::vector<Wait> more = own;
  more.push_back(transfer(kData, 14.0, 14.5));
  more.push_back(transfer(kOuterAxis, 20.5, 25.0));
  CHECK(corrected(seen, more) == 13.0);
  // Without records, or with those of other rounds alone, it stays.
  CHECK(corrected(seen, {}) == 15.0);
  CHECK(corrected(seen, {transfer(kOuterAxis, 8.0, 9.0), transfer(kOuterAxis, 20.5, 25.0)}) ==
        15.0);
  // Who waits knows when it went on.
  RoundTravel waited = seen;
  waited.waited = 1.0;
  CHECK(corrected(waited, own) == 15.0);
}

}  // namespace slackline
