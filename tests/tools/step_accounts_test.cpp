// What a step is said to have taken: seconds that add up, bytes that are those of the plan, a cost
// file and a trace.

#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/tools/training_run.h"
#include "tools/cost_file.h"
#include "tools/step_plan.h"

namespace slackline {

namespace {

const std::vector<std::string> kMesh = {
    "parallel.tensor=2", "parallel.pipeline=2", "parallel.data=1", "run.steps=8", "trace=true"};

// Lines of metrics.jsonl that are of steps.
std::vector<nlohmann::json> step_lines(const TrainingRun& run) {
  std::vector<nlohmann::json> lines;
  const std::string text = read_file(run.run_dir() + "/metrics.jsonl");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    nlohmann::json line = nlohmann::json::parse(text.substr(begin, end - begin));
    if (line.contains("loss")) {
      lines.push_back(std::move(line));
    }
    begin = end + 1;
  }
  return lines;
}

TrainConfig resolved_config(const TrainingRun& run) {
  return read_train_config(JsonReader::parse_file(run.run_dir() + "/config.resolved.json"));
}

}  // namespace

TEST_CASE("a step's seconds add up and its bytes are the plan's") {
  const TrainingRun run;
  REQUIRE(run.train(kMesh, {"--ranks", "4"}).exit_code == 0);
  const schedule::AxisBytes planned = read_step_plan(resolved_config(run), {}).step_bytes;
  const std::vector<nlohmann::json> lines = step_lines(run);
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
    REQUIRE(line["axes"]["tensor"]["sent_bytes"] == planned.tensor.value);
    REQUIRE(line["axes"]["pipeline"]["sent_bytes"] == planned.pipeline.value);
    REQUIRE(line["axes"]["data"]["sent_bytes"] == planned.data.value);
    REQUIRE(line["axes"]["embedding"]["sent_bytes"] == planned.embedding.value);
    REQUIRE(planned.pipeline.value > 0);
    REQUIRE(planned.data.value == 0);
  }
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
  const StepPlan plan = make_step_plan(resolved_config(run), costs, std::nullopt);
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

}  // namespace slackline
