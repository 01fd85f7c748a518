// Runs on the rehearsal device, through the binary: time as the costs say, messages as in training.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

using Catch::Contains;
using testing::require_done;
using testing::require_refusal;

constexpr double kForward = 0.010;  // seconds, of each stage
constexpr double kBackward = 0.020;
// Slow codecs take so long for a message that the mean of a few messages, as many as a run measures
// of a table, hides it when a busy machine wakes a rank late.
constexpr double kEncode = 0.060;
constexpr double kDecode = 0.020;

// Whether a recorded mean is what was asked for. What one sleep takes too long the next ones take
// less, so that a mean of dozens is off by the clock's remainder and the calls around sleeps.
bool took(const std::optional<schedule::Seconds>& recorded, double seconds) {
  CAPTURE(recorded.value_or(schedule::Seconds{}).value, seconds);
  CHECK(recorded.has_value());
  return std::abs(recorded.value_or(schedule::Seconds{}).value - seconds) < 0.1 * seconds + 0.5e-3;
}

std::vector<std::string> rehearsal(const TrainingRun& run,
                                   const std::vector<std::string>& changes = {}) {
  StepCosts costs;
  for (const int stage : {0, 1}) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {kForward}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {kBackward}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::optimizer, .seconds = {0.0}});
  }
  write_file_atomically(run.path("costs.json"), cost_file_text(costs));
  std::vector<std::string> all = {"device=rehearsal",
                                  "rehearsal.costs=" + run.path("costs.json"),
                                  "data.train=[{\"path\": \"none\"}]",
                                  "parallel.tensor=2",
                                  "parallel.pipeline=2",
                                  "run.steps=8"};
  all.insert(all.end(), changes.begin(), changes.end());
  return all;
}

// The assignment that emulates links between ranks on nodes of their own.
std::string links(const TrainingRun& run, int ranks, double bytes_per_second) {
  const nlohmann::json cluster = {{"nodes", {{{"count", ranks}, {"devices", 1}}}},
                                  {"links",
                                   {{{"scope", "network"},
                                     {"latency_seconds", 1e-5},
                                     {"bytes_per_second", bytes_per_second}}}}};
  write_file_atomically(run.path("links.json"), cluster.dump());
  return "network.links=" + run.path("links.json");
}

// The same between two nodes of two ranks, which have a fast link inside.
std::string links_of_two_workers(const TrainingRun& run, double bytes_per_second) {
  const nlohmann::json cluster = {
      {"nodes", {{{"count", 2}, {"devices", 2}}}},
      {"links",
       {{{"scope", "node"}, {"latency_seconds", 1e-6}, {"bytes_per_second", 1e11}},
        {{"scope", "network"},
         {"latency_seconds", 1e-5},
         {"bytes_per_second", bytes_per_second},
         {"shared_by", "node"}}}}};
  write_file_atomically(run.path("links.json"), cluster.dump());
  return "network.links=" + run.path("links.json");
}

// Seconds of a round.
struct Travel {
  double round = 0.0;
  double period = 0.0;
  double wait = 0.0;
};

// Of the rank to which it took longest.
double length_of(const std::vector<schedule::TraceBar>& bars, const std::string& track, int step) {
  std::map<int, double> seconds;
  for (const schedule::TraceBar& bar : bars) {
    const bool is_it = bar.name == "round sent with step " + std::to_string(step) ||
                       bar.name.starts_with(fmt::format("steps {} to ", step + 1));
    seconds[bar.rank] += bar.track == track && is_it ? bar.duration.value : 0.0;
  }
  double longest = 0.0;
  for (const auto& [rank, of_rank] : seconds) {
    longest = std::max(longest, of_rank);
  }
  return longest;
}

// Lines of ends and the trace say of the rounds that the ends at 6, 9 and 12 used, sent so many
// steps before, that they travelled like this.
void require_travels(const TrainingRun& run, const Travel& expected, int steps) {
  const std::vector<nlohmann::json> lines = step_lines(run.run_dir());
  const auto bars = schedule::read_trace(run.run_dir() + "/trace.json");
  const double margin = 0.2 * std::max(expected.round, expected.period);  // of single rounds
  for (const int end : {6, 9, 12}) {
    const nlohmann::json& outer = lines.at(static_cast<std::size_t>(end) - 1).at("outer");
    INFO("end " << end << ": " << outer.dump());
    const int sent = end - steps;
    REQUIRE(outer.at("sent_step") == sent);
    CHECK(outer.at("round_seconds").get<double>() == Approx(expected.round).margin(margin));
    CHECK(outer.at("period_seconds").get<double>() == Approx(expected.period).margin(margin));
    CHECK(outer.at("wait_seconds").get<double>() == Approx(expected.wait).margin(margin));
    CHECK(length_of(bars, "outer rounds", sent) == Approx(expected.round).margin(margin));
    CHECK(length_of(bars, "steps beside outer rounds", sent) ==
          Approx(expected.period).margin(margin));
    CHECK(length_of(bars, "waiting for outer rounds", sent) ==
          Approx(expected.wait).margin(margin));
  }
}

double sent(const TrainingRun& run, const std::string& directory) {
  const nlohmann::json line = step_lines(run.path(directory)).front();
  return line["axes"]["tensor"]["sent_bytes"].get<double>() +
         line["axes"]["pipeline"]["sent_bytes"].get<double>();
}

}  // namespace

TEST_CASE("a rehearsal takes its time, sends what training sends and learns nothing") {
  const TrainingRun run;
  const ProcessResult result = require_done(run.train(rehearsal(run), {"--ranks", "4"}));
  const TrainConfig config =
      read_train_config(JsonReader::parse_file(run.run_dir() + "/config.resolved.json"));
  const StepPlan plan = read_step_plan(plan_job(config), {});
  // Two stages and two micro-batches: three forward and backward passes one after the other.
  REQUIRE(plan.timeline.step.value == Approx(3.0 * (kForward + kBackward)).margin(1e-6));
  REQUIRE(run.metric("step_seconds").size() == 8);
  CHECK(run.metric("lr").at(1) > 0.0);  // that of the schedule
  const StepCosts recorded = read_cost_file(run.run_dir() + "/costs.json");
  for (const int stage : {0, 1}) {
    CHECK(took(recorded.of_stage(stage, CostKind::forward), kForward));
    CHECK(took(recorded.of_stage(stage, CostKind::backward), kBackward));
  }
  const nlohmann::json line = step_lines(run.run_dir()).front();
  REQUIRE(line["loss"].is_null());
  REQUIRE(line["grad_norm"].is_null());
  REQUIRE(line["axes"]["tensor"]["sent_bytes"] == plan.step_bytes[kTensorAxis]);
  REQUIRE(line["axes"]["pipeline"]["sent_bytes"] == plan.step_bytes[kPipelineAxis]);
  REQUIRE(line["axes"]["embedding"]["sent_bytes"] == plan.step_bytes[kEmbeddingAxis]);
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir() + "/checkpoints"));
  REQUIRE_THAT(result.error, Contains("predicted from the costs it was given"));
}

TEST_CASE("a rehearsal compresses as training does: the same bytes, and the codecs' seconds") {
  const TrainingRun run;
  const std::vector<std::string> compressed = {
      "parallel.tensor=1",
      "parallel.pipeline=2",
      "parallel.data=2",
      "batch.micro=1",
      "run.steps=8",
      "run.eval_every=0",
      "compress.policy=all",
      R"(compress.pipeline_backward={"codec": "low_rank", "rank": 2, "error_feedback": "lazy"})",
      R"(compress.pipeline_forward={"codec": "quantize", "bits": 8})",
      R"(compress.data_gradient={"codec": "low_rank", "rank": 2, "error_feedback": "immediate"})",
      R"(compress.embedding={"codec": "top_k", "ratio": 0.1})"};
  require_done(run.train(compressed, {"--ranks", "4"}));
  std::vector<std::string> rehearsed = rehearsal(run, compressed);
  rehearsed.push_back("run.dir=" + run.path("rehearsed"));
  require_done(run.train(rehearsed, {"--ranks", "4"}));
  for (const char* axis : {"pipeline", "data", "embedding"}) {
    INFO(axis);
    const auto sent_bytes = [&](const std::string& directory) {
      return step_lines(run.path(directory)).front()["axes"][axis]["sent_bytes"].get<double>();
    };
    CHECK(sent_bytes("rehearsed") > 0.0);
    CHECK(sent_bytes("rehearsed") == sent_bytes("run"));
  }
  // Codecs that take long make the step longer, as predicted.
  StepCosts costs = read_cost_file(run.path("costs.json"));
  for (CodecCost codec : read_cost_file(run.run_dir() + "/costs.json").codecs) {
    codec.encode = {kEncode};
    codec.decode = {kDecode};
    costs.codecs.push_back(codec);
  }
  REQUIRE_FALSE(costs.codecs.empty());
  write_file_atomically(run.path("slow_codecs.json"), cost_file_text(costs));
  rehearsed.push_back("rehearsal.costs=" + run.path("slow_codecs.json"));
  rehearsed.push_back("run.dir=" + run.path("slow"));
  REQUIRE(run.train(rehearsed, {"--ranks", "4"}).exit_code == 0);
  const nlohmann::json plan = nlohmann::json::parse(read_file(run.path("slow") + "/plan.json"));
  const auto predicted = plan[0]["predicted_step_seconds"].get<double>();
  CHECK(predicted > 3.0 * (kForward + kBackward) + 2.0 * (kEncode + kDecode));
  const StepCosts recorded = read_cost_file(run.path("slow") + "/costs.json");
  REQUIRE_FALSE(recorded.codecs.empty());
  for (const CodecCost& codec : recorded.codecs) {
    INFO(short_text(codec.codec));
    CHECK(took(codec.encode, kEncode));
    CHECK(took(codec.decode, kDecode));
  }
  CHECK(took(recorded.of_stage(0, CostKind::backward), kBackward));
  // Sleeps never end early, so a step that has all of this in it is not shorter.
  CHECK(run.metric("step_seconds", "slow").back() > 0.9 * predicted);
}

TEST_CASE("a rehearsal under critical_path begins with the plan that it is predicted to choose") {
  const TrainingRun run;
  require_done(run.train(rehearsal(run,
                                   {"parallel.tensor=1",
                                    "parallel.data=2",
                                    "batch.micro=1",
                                    links(run, 4, 1e6),
                                    "compress.policy=critical_path"}),
                         {"--ranks", "4"}));
  const nlohmann::json plan = nlohmann::json::parse(read_file(run.run_dir() + "/plan.json"));
  REQUIRE(plan.size() == 1);
  CHECK(plan[0]["from_step"] == 1);
  CHECK_THAT(plan.dump(), Contains("wins"));
}

// The last stage has two slots. It posts the receive of a micro-batch while the gradient that
// leaves the same slot is on its way for 15 ms; waiting for that would make a step a tenth longer.
// Odd micro-batches are received after an even one has arrived, by when their slot's has gone.
TEST_CASE("a receive is posted while its slot's last gradient is being sent") {
  const TrainingRun run;
  const std::vector<std::string> config = rehearsal(
      run,
      {"parallel.tensor=1", "batch.micro=1", "run.steps=4", "trace=true", links(run, 2, 273e3)});
  StepCosts costs;
  for (const auto& [stage, forward, backward] :
       {std::tuple{0, 0.005, 0.010}, std::tuple{1, 0.001, 0.030}}) {
    costs.ops.push_back({.stage = stage, .kind = CostKind::forward, .seconds = {forward}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::backward, .seconds = {backward}});
    costs.ops.push_back({.stage = stage, .kind = CostKind::optimizer, .seconds = {0.0}});
  }
  write_file_atomically(run.path("costs.json"), cost_file_text(costs));
  REQUIRE(run.train(config, {"--ranks", "2"}).exit_code == 0);
  // The bars of a transfer begin when it was submitted. The names of both traced steps' are equal.
  std::map<std::string, std::vector<schedule::TraceBar>> bars;
  for (const schedule::TraceBar& bar : schedule::read_trace(run.run_dir() + "/trace.json")) {
    if (bar.rank == 1 && bar.track == "pipeline") {
      bars[bar.name].push_back(bar);
    }
  }
  int posted_meanwhile = 0;
  constexpr int kMicroBatches = 8;
  for (int m = 2; m < kMicroBatches; m += 2) {
    const auto& receives = bars.at("receive: activations s1 m" + std::to_string(m));
    const auto& sends = bars.at("send: gradient s1 m" + std::to_string(m - 2));
    REQUIRE(receives.size() == 2);
    REQUIRE(sends.size() == 2);
    for (const std::size_t step : {0U, 1U}) {
      const double sent = sends[step].start.value + sends[step].duration.value;
      posted_meanwhile += receives[step].start.value < sent ? 1 : 0;
    }
  }
  // All six of two steps; a rank that a busy machine holds up for 15 ms posts one late. None where
  // receives wait for the slot's gradient.
  CHECK(posted_meanwhile >= 4);
}

TEST_CASE("rehearsed rounds hide behind steps, or take as long as they travel") {
  const TrainingRun run;
  constexpr int kPeriod = 3;
  const auto settings = [&](int delay, double bytes_per_second) {
    return rehearsal(
        run,
        {"parallel.tensor=1",
         "parallel.data=2",
         "parallel.group=1",
         "batch.micro=2",
         fmt::format(R"(outer={{"method": "co2", "period": {}, "delay": {}}})", kPeriod, delay),
         links_of_two_workers(run, bytes_per_second),
         "trace=true",
         "run.steps=13"});
  };
  const auto plan_of = [&] {
    return read_step_plan(plan_job(read_train_config(
                              JsonReader::parse_file(run.run_dir() + "/config.resolved.json"))),
                          {});
  };
  // The mean of three settled periods.
  const auto step_seconds = [&](int delay, double bytes_per_second) {
    std::filesystem::remove_all(run.run_dir());
    require_done(run.train(settings(delay, bytes_per_second), {"--ranks", "4"}));
    const std::vector<double> steps = run.metric("step_seconds");
    REQUIRE(steps.size() == 13);
    return std::accumulate(
               steps.begin() + kPeriod, steps.begin() + std::ptrdiff_t{4} * kPeriod, 0.0) /
           (3 * kPeriod);
  };
  constexpr double kFast = 1e8;
  const double computing = step_seconds(1, kFast);
  const double round_at_once = plan_of().round->seconds->value * kFast;  // at a byte a second
  const double period = kPeriod * computing;
  const auto speed_for = [&](double round) { return round_at_once / round; };
  CHECK(step_seconds(1, speed_for(0.6 * period)) == Approx(computing).epsilon(0.1));
  require_travels(run, {.round = 0.6 * period, .period = period, .wait = 0.0}, kPeriod);
  CHECK(step_seconds(1, speed_for(2.0 * period)) == Approx(2.0 * computing).epsilon(0.1));
  require_travels(run, {.round = 2.0 * period, .period = period, .wait = period}, kPeriod);
  CHECK(plan_of().round->seconds->value == Approx(2.0 * period).epsilon(0.05));
  CHECK(step_seconds(0, speed_for(period)) == Approx(2.0 * computing).epsilon(0.1));
  require_travels(run, {.round = period, .period = 0.0, .wait = period}, 0);
  const std::string text = read_file(run.run_dir() + "/metrics.jsonl");
  CHECK_THAT(text, Contains(R"("worker_losses": [null, null])"));
}

TEST_CASE("a rehearsal refuses costs that it would replace") {
  const TrainingRun run;
  std::filesystem::create_directories(run.run_dir());
  const StepCosts costs;
  write_file_atomically(run.run_dir() + "/costs.json", cost_file_text(costs));
  const ProcessResult result = run.train(
      {"device=rehearsal", "rehearsal.costs=" + run.run_dir() + "/costs.json", "run.eval_every=0"});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.error,
             Catch::Contains("rehearsal.costs: ") && Catch::Contains("that this run writes"));
}

TEST_CASE("a rehearsal's resolved config has what was decided as it began") {
  const TrainingRun run;
  const std::vector<std::string> open = rehearsal(run,
                                                  {links(run, 4, 1e8),
                                                   "parallel.tensor=1",
                                                   "parallel.data=2",
                                                   "parallel.data_strategy=auto",
                                                   "batch.global=16",
                                                   "run.steps=1"});
  const ProcessResult result = require_done(run.train(open, {"--ranks", "4"}));
  const TrainConfig decided =
      read_train_config(JsonReader::parse_file(run.run_dir() + "/config.resolved.json"));
  CHECK_FALSE(decided.parallel.chooses_strategy);
  CHECK_THAT(result.error,
             Contains(fmt::format("parallel.data_strategy: {} is chosen",
                                  name_of(decided.parallel.data_strategy))));
}

TEST_CASE("rehearsal.scale divides what is sent") {
  const TrainingRun run;
  REQUIRE(run.train(rehearsal(run), {"--ranks", "4"}).exit_code == 0);
  const std::vector<std::string> scaled =
      rehearsal(run, {"rehearsal.scale=8", "run.dir=" + run.path("scaled"), "run.steps=1"});
  REQUIRE(run.train(scaled, {"--ranks", "4"}).exit_code == 0);
  // Messages of a few hundred elements, rounded up to whole ones.
  REQUIRE(sent(run, "scaled") == Approx(sent(run, "run") / 8.0).epsilon(0.05));
}

// Shadow memory is not the program's.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a rehearsal needs memory for its messages alone") {
  const TrainingRun run;
  const std::vector<std::string> huge = rehearsal(run,
                                                  {"model.layers=24",
                                                   "model.hidden=4096",
                                                   "model.heads=32",
                                                   "model.vocab=50257",
                                                   "rehearsal.scale=1000",
                                                   "run.steps=2"});
  const ProcessResult result = require_done(run.train(huge, {"--ranks", "4"}));
  const TrainConfig config =
      read_train_config(JsonReader::parse_file(run.run_dir() + "/config.resolved.json"));
  constexpr std::size_t kGigabyte = 1'000'000'000;
  REQUIRE(read_step_plan(plan_job(config), {}).ranks.at(0).memory_bytes > 15 * kGigabyte);
  REQUIRE(result.peak_bytes < kGigabyte);
}
#endif

TEST_CASE("what a rehearsal cannot do is refused before it begins") {
  const TrainingRun run;
  const auto refused = [&](const std::vector<std::string>& assignments,
                           const std::vector<std::string>& options,
                           const std::string& text) {
    require_refusal(run.train(assignments, options), 2, text);
    REQUIRE_FALSE(std::filesystem::exists(run.run_dir()));
  };
  refused(rehearsal(run), {"--ranks", "4", "--resume"}, "a rehearsal saves nothing");
  refused(rehearsal(run, {"debug.check_sync=true"}), {"--ranks", "4"}, "debug.check_sync");
  refused(rehearsal(run, {"rehearsal.scale=0.5"}), {"--ranks", "4"}, "rehearsal.scale");
  refused(
      rehearsal(run, {"rehearsal.costs=" + run.path("none.json")}), {"--ranks", "4"}, "none.json");
  write_file_atomically(run.path("few.json"),
                        R"({"ops": [{"stage": 0, "kind": "forward", "seconds": 1}]})");
  refused(rehearsal(run, {"rehearsal.costs=" + run.path("few.json")}),
          {"--ranks", "4"},
          "few.json: ops: must give");
}

}  // namespace slackline
