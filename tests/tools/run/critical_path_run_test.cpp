// Whole runs under policy critical_path: they measure, choose, obey, and are the same run when
// resumed or replayed.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/four_rank_links.h"
#include "tests/tools/run/metrics_lines.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
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

// Four nodes of one rank each, or as many of more.
std::string links(const TrainingRun& run, double bytes_per_second, int nodes = 4) {
  return write_links(
      run, {.nodes = nodes, .latency_seconds = 1e-5, .bytes_per_second = bytes_per_second});
}

ProcessResult train(const TrainingRun& run,
                    const std::string& name,
                    const std::vector<std::string>& assignments,
                    const std::vector<std::string>& options = {}) {
  return require_done(run.train(with(with(kJob, {"run.dir=" + run.path(name)}), assignments),
                                with(kRanks, options)));
}

Json plan_of(const TrainingRun& run, const std::string& name) {
  return Json::parse(read_file(run.path(name) + "/plan.json"));
}

Json last_checkpoint_plan(const TrainingRun& run, const std::string& name, int step) {
  return Json::parse(read_file(run.checkpoint(step, name) + "/manifest.json"))["plan"];
}

// What all axes of each step sent, or, of raw_bytes, what they would send plain.
std::vector<double> sent_bytes(const TrainingRun& run,
                               const std::string& name,
                               const std::string& field = "sent_bytes") {
  std::vector<double> sent;
  for (const Json& step : step_lines(run.path(name))) {
    double sum = 0.0;
    for (const auto& [axis, bytes] : step["axes"].items()) {
      sum += bytes[field].get<double>();
    }
    sent.push_back(sum);
  }
  return sent;
}

}  // namespace

TEST_CASE("a run over slow links compresses from step 1 on, and from step 3 by what it measured") {
  const TrainingRun run;
  const std::string alone = "compress.guard.max_error=null";  // plans of the guard's come besides
  const ProcessResult result = train(run, "slow", {links(run, 2e6), alone, "trace=true"});
  CHECK_THAT(result.error, Contains("critical_path: from step 3"));
  const Json plan = plan_of(run, "slow");
  REQUIRE(plan.size() >= 2);
  CHECK(plan.size() <= 3);  // refined, or found right
  CHECK(plan[0]["from_step"] == 1);
  CHECK(plan[1]["from_step"] == 3);
  CHECK((plan.size() == 2 || plan[2]["from_step"] == 10));
  int won = 0;
  for (const Json& row : plan[0]["classes"]) {
    won += row["codec"].is_null() ? 0 : 1;
    CHECK((row["codec"].is_null() || row["codec"]["codec"] == "quantize" ||
           row["codec"]["codec"] == "cast"));
    CHECK_THAT(row["reason"].get<std::string>(), Contains("before steps are measured"));
  }
  CHECK(won > 0);
  for (const Json& row : plan[1]["classes"]) {
    const bool compressed = !row["codec"].is_null();
    CHECK_THAT(row["reason"].get<std::string>(), Contains(compressed ? "wins" : "plain"));
    CHECK((row["encode_seconds"].is_null() || compressed));
  }
  const std::vector<double> sent = sent_bytes(run, "slow");
  REQUIRE(sent.size() == 12);
  const double plain = sent_bytes(run, "slow", "raw_bytes").front();
  CHECK(sent[0] < 0.5 * plain);  // integers of 8 bits for the 32 of nearly all
  CHECK(sent[1] == sent[0]);
  CHECK(sent[2] < plain);
  CHECK(sent[8] == sent[2]);
  CHECK_FALSE(Json::parse(read_file(run.path("slow") + "/costs.json"))["codecs"].empty());
  // What is traced are steps under the plan.
  const std::string trace = read_file(run.path("slow") + "/trace.json");
  CHECK_THAT(trace, Contains("\"step 4\"") && Contains("\"step 5\"") && !Contains("\"step 2\""));

  // The same bits from the plan, and from a run that stopped before it was in force.
  const std::string weights = run.weights_sha256(run.checkpoint(12, "slow"));
  train(run,
        "replayed",
        {links(run, 2e6),
         alone,
         "compress.policy=replay",
         "compress.plan=" + run.path("slow/plan.json")});
  CHECK(run.weights_sha256(run.checkpoint(12, "replayed")) == weights);
}

TEST_CASE("what passes add up is chosen for, measured, resumed and replayed like all else") {
  const TrainingRun run;
  const std::vector<std::string> job = {links(run, 1e6),
                                        "compress.guard.max_error=null",
                                        "parallel.pipeline=1",
                                        "parallel.data=4",
                                        "parallel.data_strategy=zero3"};
  const ProcessResult whole = train(run, "whole", with(job, {"run.save_every=8"}));
  CHECK_THAT(whole.error, Contains("outer rounds"));  // no codec makes up for such links
  const Json plan = plan_of(run, "whole");
  REQUIRE(plan.size() >= 2);
  for (const Json& from : plan) {
    const auto coded = std::ranges::count_if(from["classes"], [](const Json& row) {
      return row["site"] == "data_gradient" && !row["codec"].is_null();
    });
    CHECK(coded > 0);
  }
  const Json costs = Json::parse(read_file(run.path("whole") + "/costs.json"));
  CHECK(std::ranges::any_of(costs["errors"],
                            [](const Json& row) { return row["site"] == "data_gradient"; }));
  CHECK(sent_bytes(run, "whole").back() < sent_bytes(run, "whole", "raw_bytes").back());
  const std::string weights = run.weights_sha256(run.checkpoint(12, "whole"));
  train(run, "rest", with(job, {"checkpoint.resume_from=" + run.checkpoint(8, "whole")}));
  CHECK(run.weights_sha256(run.checkpoint(12, "rest")) == weights);
  train(run,
        "replayed",
        with(job, {"compress.policy=replay", "compress.plan=" + run.path("whole/plan.json")}));
  CHECK(run.weights_sha256(run.checkpoint(12, "replayed")) == weights);
}

TEST_CASE("on nodes of several ranks the sums that are chosen for go by levels") {
  const TrainingRun run;
  for (const char* strategy : {"replicate", "zero2"}) {
    INFO(strategy);
    // Slow enough for integers to win under a sanitizer as well, where codecs take much longer.
    const std::vector<std::string> job = {links(run, 2.5e5, 2),
                                          "compress.guard.max_error=null",
                                          "parallel.pipeline=1",
                                          "parallel.data=4",
                                          std::string("parallel.data_strategy=") + strategy};
    const std::string whole = std::string("whole-") + strategy;
    train(run, whole, with(job, {"run.save_every=8"}));
    CHECK_THAT(read_file(run.path(whole) + "/plan.txt"), Contains("across_groups"));
    const std::vector<Json> steps = step_lines(run.path(whole));
    const auto across = [](const Json& step) {
      return step["axes"]["data"]["across_bytes"].get<double>();
    };
    // Nodes of two ranks send half of what is plain between them, and 8 bits or less are a quarter.
    CHECK(across(steps.back()) < 0.2 * steps.back()["axes"]["data"]["raw_bytes"].get<double>());
    const std::string weights = run.weights_sha256(run.checkpoint(12, whole));
    const auto again = [&](const std::string& name, const std::vector<std::string>& settings) {
      train(run, name + strategy, with(job, settings));
      CHECK(run.weights_sha256(run.checkpoint(12, name + strategy)) == weights);
    };
    again("rest-", {"checkpoint.resume_from=" + run.checkpoint(8, whole)});
    again("replayed-",
          {"compress.policy=replay", "compress.plan=" + run.path(whole + "/plan.json")});
  }
}

TEST_CASE("what candidates lose is measured on the run's own messages") {
  const TrainingRun run;
  const std::string strategy = GENERATE("replicate", "zero1");
  train(run, "run", {links(run, 2e6), "run.steps=4", "parallel.data_strategy=" + strategy});
  const auto costs = Json::parse(read_file(run.path("run") + "/costs.json"));
  std::map<std::string, std::map<int, double>> of_ranks;  // by site
  int integers = 0;
  for (const Json& row : costs["errors"]) {
    const Json& codec = row["codec"];
    const double error = row["relative_error"];
    INFO(row.dump());
    if (codec["codec"] == "low_rank" && row["stage"] == 0) {
      of_ranks[row["site"]][codec["rank"]] = error;
    } else if (codec["codec"] == "quantize" && codec["bits"] == 8) {
      CHECK(error > 1e-4);
      CHECK(error < 0.02);  // 0.0069 of normal values
      ++integers;
    }
  }
  CHECK(integers == 7);  // of every class
  REQUIRE(of_ranks.size() == 2);
  for (const auto& [site, by_rank] : of_ranks) {
    REQUIRE(by_rank.size() == 4);
    double coarser = 1.0;
    for (const auto& [rank, error] : by_rank) {
      CHECK(error > 0.0);
      CHECK(error < coarser);
      coarser = error;
    }
  }
}

TEST_CASE("a resumed run keeps the plans that it chose, whatever the config would choose now") {
  const TrainingRun run;
  const std::string alone = "compress.guard.max_error=null";  // that would change them, too
  train(run, "run", {links(run, 2e6), alone, "run.steps=11"});
  const Json chosen = last_checkpoint_plan(run, "run", 11);
  REQUIRE(chosen["history"].size() >= 2);
  const ProcessResult resumed =
      train(run, "run", {links(run, 1e12), alone, "run.steps=18"}, {"--resume"});
  CHECK_THAT(resumed.error, !Contains("critical_path: from step"));
  CHECK(last_checkpoint_plan(run, "run", 18) == chosen);
}

TEST_CASE(
    "a run resumed with stages cut otherwise measures again: a plan names its boundaries by "
    "stages") {
  const TrainingRun run;
  const std::vector<std::string> slow = {links(run, 2e6)};
  train(run, "run", with(slow, {"run.steps=10", "parallel.stage_layers=[1,3]"}));
  REQUIRE(last_checkpoint_plan(run, "run", 10)["history"].size() >= 2);
  const ProcessResult resumed =
      train(run, "run", with(slow, {"run.steps=22", "parallel.stage_layers=[3,1]"}), {"--resume"});
  CHECK_THAT(resumed.error, Contains("critical_path: from step 13"));
}

TEST_CASE("a run that stops before it has chosen goes on measuring") {
  const TrainingRun run;
  const std::vector<std::string> slow = {links(run, 2e6)};
  train(run, "run", with(slow, {"run.steps=1"}));
  const Json early = last_checkpoint_plan(run, "run", 1);
  REQUIRE(early["history"].size() == 1);
  const ProcessResult resumed = train(run, "run", with(slow, {"run.steps=8"}), {"--resume"});
  CHECK_THAT(resumed.error, Contains("critical_path: from step 4"));
  CHECK(last_checkpoint_plan(run, "run", 8)["history"][0] == early["history"][0]);
}

TEST_CASE("warm-up steps are plain, and what follows counts from them") {
  const TrainingRun run;
  const ProcessResult result = train(run, "run", {links(run, 2e6), "compress.warmup_steps=4"});
  CHECK_THAT(result.error, Contains("critical_path: from step 7"));
  const std::vector<double> sent = sent_bytes(run, "run");
  CHECK(sent[3] == sent[0]);
  CHECK(sent[4] < sent[3]);
  const Json plan = plan_of(run, "run");
  CHECK(plan.at(1)["from_step"] == 5);
  CHECK(plan.at(2)["from_step"] == 7);
}

TEST_CASE("what is measured to lose more than the guard lets pass is never sent") {
  const TrainingRun run;
  const ProcessResult result =
      train(run, "run", {links(run, 2.5e5), "compress.guard.max_error=1e-6"});
  CHECK_THAT(result.error, Contains("from step 3 0 of 7 classes"));
  const std::vector<double> sent = sent_bytes(run, "run");
  CHECK(sent.back() == sent.front());
}

TEST_CASE("over fast links nothing is compressed, and the plan says why") {
  const TrainingRun run;
  const ProcessResult result = train(run, "fast", {links(run, 1e12)});
  CHECK_THAT(result.error, Contains("from step 3 0 of 7 classes") && !Contains("outer rounds"));
  const std::string plan = read_file(run.path("fast") + "/plan.txt");
  CHECK_THAT(plan, Contains("left plain"));
  const std::vector<double> sent = sent_bytes(run, "fast");
  CHECK(sent.back() == sent.front());
}

}  // namespace slackline
