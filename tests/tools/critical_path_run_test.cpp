// Whole runs under policy critical_path: they measure, choose, obey, and are the same run when
// resumed or replayed.

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/tools/training_run.h"
#include "tools/drift_watch.h"

namespace slackline {

using Catch::Contains;
using Json = nlohmann::json;

namespace {

const std::vector<std::string> kJob = {"model.layers=4",
                                       "batch.micro=1",
                                       "parallel.pipeline=2",
                                       "parallel.data=2",
                                       "run.steps=12",
                                       "run.save_every=0",
                                       "run.eval_every=0",
                                       "compress.policy=critical_path"};
const std::vector<std::string> kRanks = {"--ranks", "4"};

// Four nodes of one rank each.
std::string links(const TrainingRun& run, double bytes_per_second) {
  const std::string path = run.path("links.json");
  write_file_atomically(path,
                        R"({"nodes": [{"count": 4, "devices": 1, "memory_bytes": 1e9}],
          "links": [{"scope": "network", "latency_seconds": 1e-5, "bytes_per_second": )" +
                            std::to_string(bytes_per_second) +
                            R"(, "duplex": true, "shared_by": "pair", "source": "assumed"}]})");
  return "network.links=" + path;
}

ProcessResult train(const TrainingRun& run,
                    const std::string& name,
                    const std::vector<std::string>& assignments,
                    const std::vector<std::string>& options = {}) {
  ProcessResult result = run.train(with(with(kJob, {"run.dir=" + run.path(name)}), assignments),
                                   with(kRanks, options));
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  return result;
}

Json plan_of(const TrainingRun& run, const std::string& name) {
  return Json::parse(read_file(run.path(name) + "/plan.json"));
}

Json last_checkpoint_plan(const TrainingRun& run, const std::string& name, int step) {
  return Json::parse(read_file(run.checkpoint(step, name) + "/manifest.json"))["plan"];
}

std::vector<Json> step_lines(const TrainingRun& run, const std::string& name) {
  std::vector<Json> steps;
  std::istringstream lines(read_file(run.path(name) + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    steps.push_back(Json::parse(line));
  }
  return steps;
}

std::vector<double> sent_bytes(const TrainingRun& run, const std::string& name) {
  std::vector<double> sent;
  for (const Json& step : step_lines(run, name)) {
    double sum = 0.0;
    for (const auto& [axis, bytes] : step["axes"].items()) {
      sum += bytes["sent_bytes"].get<double>();
    }
    sent.push_back(sum);
  }
  return sent;
}

std::vector<double> step_seconds(const TrainingRun& run, const std::string& name) {
  std::vector<double> seconds;
  for (const Json& step : step_lines(run, name)) {
    seconds.push_back(step["step_seconds"].get<double>());
  }
  return seconds;
}

// Of steps first + 1 to last.
double median(const std::vector<double>& seconds, int first, int last) {
  std::vector<double> part(seconds.begin() + first, seconds.begin() + last);
  std::ranges::nth_element(part, part.begin() + (last - first) / 2);
  return part[static_cast<std::size_t>(last - first) / 2];
}

}  // namespace

TEST_CASE("a run over slow links measures, and compresses from step 9 on what it waits for") {
  const TrainingRun run;
  const ProcessResult result = train(run, "slow", {links(run, 2e6), "trace=true"});
  CHECK_THAT(result.error, Contains("critical_path: from step 9"));
  const Json plan = plan_of(run, "slow");
  REQUIRE(plan.size() == 2);
  CHECK(plan[0]["from_step"] == 1);
  CHECK(plan[1]["from_step"] == 9);
  CHECK(plan[1]["predicted_step_seconds"] < plan[0]["predicted_step_seconds"]);
  bool won = false;
  for (const Json& row : plan[1]["classes"]) {
    const bool compressed = !row["codec"].is_null();
    CHECK_THAT(row["reason"].get<std::string>(), Contains(compressed ? "wins" : "plain"));
    CHECK((row["encode_seconds"].is_null() || compressed));
    won = won || compressed;
  }
  CHECK(won);
  const std::vector<double> sent = sent_bytes(run, "slow");
  REQUIRE(sent.size() == 12);
  CHECK(sent[7] == sent[0]);
  CHECK(sent[8] < 0.8 * sent[7]);
  CHECK(sent[11] == sent[8]);
  CHECK_FALSE(Json::parse(read_file(run.path("slow") + "/costs.json"))["codecs"].empty());
  // What is traced are steps under the plan.
  const std::string trace = read_file(run.path("slow") + "/trace.json");
  CHECK_THAT(trace, Contains("\"step 10\"") && Contains("\"step 11\"") && !Contains("\"step 3\""));

  // The same bits from the plan, and from a run that stopped before it was in force.
  const std::string weights = run.weights_sha256(run.checkpoint(12, "slow"));
  train(run,
        "replayed",
        {links(run, 2e6), "compress.policy=replay", "compress.plan=" + run.path("slow/plan.json")});
  CHECK(run.weights_sha256(run.checkpoint(12, "replayed")) == weights);
}

TEST_CASE("a resumed run keeps the plan that it chose") {
  const TrainingRun run;
  const std::vector<std::string> slow = {links(run, 2e6)};
  train(run, "run", with(slow, {"run.save_every=10", "run.steps=10"}));
  const Json chosen = last_checkpoint_plan(run, "run", 10);
  REQUIRE(chosen["history"].size() == 2);
  const ProcessResult resumed = train(run, "run", with(slow, {"run.steps=18"}), {"--resume"});
  CHECK_THAT(resumed.error, !Contains("critical_path: from step"));
  CHECK(last_checkpoint_plan(run, "run", 18) == chosen);
}

TEST_CASE(
    "a run resumed with stages cut otherwise measures again: a plan names its boundaries by "
    "stages") {
  const TrainingRun run;
  const std::vector<std::string> slow = {links(run, 2e6)};
  train(run, "run", with(slow, {"run.steps=10", "parallel.stage_layers=[1,3]"}));
  REQUIRE(last_checkpoint_plan(run, "run", 10)["history"].size() == 2);
  const ProcessResult resumed =
      train(run, "run", with(slow, {"run.steps=22", "parallel.stage_layers=[3,1]"}), {"--resume"});
  CHECK_THAT(resumed.error, Contains("critical_path: from step 19"));
}

TEST_CASE("a run that stops before it has chosen measures again") {
  const TrainingRun run;
  const std::vector<std::string> slow = {links(run, 2e6)};
  train(run, "run", with(slow, {"run.steps=4"}));
  const ProcessResult resumed = train(run, "run", with(slow, {"run.steps=16"}), {"--resume"});
  CHECK_THAT(resumed.error, Contains("critical_path: from step 13"));
}

TEST_CASE("a guard goes through the candidates, and its plan stays however long steps then take") {
  const TrainingRun run;
  const ProcessResult result =
      train(run, "run", {links(run, 2.5e5), "run.steps=40", "compress.guard.max_error=1e-6"});
  CHECK_THAT(result.error, Contains("critical_path: from step 9"));
  CHECK_THAT(result.error, Contains("quantize 8 becomes cast"));
  CHECK_THAT(result.error, Contains("cast is turned off") && !Contains("drifted"));
  // Each plan is judged in its fourth step, long before step 100, and its successor comes three
  // steps later: 9, 15, 21, unless a class needs one more.
  const Json last = plan_of(run, "run").back();
  CHECK(last["from_step"].get<int>() <= 27);
  for (const Json& row : last["classes"]) {
    CHECK(row["codec"].is_null());
  }
  const std::vector<double> seconds = step_seconds(run, "run");
  REQUIRE(seconds.size() == 40);
  // More than what counts as drift from the steps by which it would be told.
  CHECK(median(seconds, 27, 40) > (1.0 + DriftWatch::kDrift) * median(seconds, 8, 14));
}

TEST_CASE("over fast links nothing is compressed, and the plan says why") {
  const TrainingRun run;
  const ProcessResult result = train(run, "fast", {links(run, 1e12)});
  CHECK_THAT(result.error, Contains("from step 9 0 of 7 classes"));
  const std::string plan = read_file(run.path("fast") + "/plan.txt");
  CHECK_THAT(plan, Contains("left plain"));
  const std::vector<double> sent = sent_bytes(run, "fast");
  CHECK(sent.back() == sent.front());
}

}  // namespace slackline
