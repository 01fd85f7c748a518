// Whole runs with a guard: measuring changes nothing, a budget does, and runs that are resumed or
// replayed change with it at the same steps.

#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/metrics_lines.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;

namespace {

using Json = nlohmann::json;

const std::vector<std::string> kJob = {
    "model.layers=4",
    "batch.micro=1",
    "optimizer.lr=1e-3",
    "parallel.pipeline=2",
    "parallel.data=2",
    "run.steps=14",
    "run.save_every=0",
    "run.eval_every=0",
    "compress.policy=all",
    R"(compress.pipeline_backward={"codec": "low_rank", "rank": 2, "error_feedback": "lazy"})",
    R"(compress.pipeline_forward={"codec": "quantize", "bits": 4, "error_feedback": "immediate"})",
    R"(compress.data_gradient={"codec": "low_rank", "rank": 2, "error_feedback": "immediate"})",
    R"(compress.embedding={"codec": "top_k", "ratio": 0.2, "error_feedback": "immediate"})"};

// Sampled steps 2, 4, ... and changes from 5 on.
const std::vector<std::string> kBudget = {"compress.guard.every=2", "compress.guard.max_error=0.2"};

ProcessResult require_trained(const TrainingRun& run,
                              const std::string& name,
                              const std::vector<std::string>& assignments) {
  return require_done(
      run.train(with(with(kJob, {"run.dir=" + run.path(name)}), assignments), {"--ranks", "4"}));
}

// Without the costs that were measured.
Json plan_of(const TrainingRun& run, const std::string& name) {
  Json plans = Json::parse(read_file(run.path(name) + "/plan.json"));
  for (Json& plan : plans) {
    plan.erase("predicted_step_seconds");
    for (Json& row : plan["classes"]) {
      for (const char* measured :
           {"raw_seconds", "encode_seconds", "decode_seconds", "slack_seconds"}) {
        row.erase(measured);
      }
    }
  }
  return plans;
}

void require_same_end(const TrainingRun& run, const std::string& a, const std::string& b) {
  REQUIRE(run.weights_sha256(run.checkpoint(14, a)) == run.weights_sha256(run.checkpoint(14, b)));
}

}  // namespace

TEST_CASE("measuring what compression loses changes no bit and no byte") {
  const TrainingRun run;
  require_trained(run, "blind", {"compress.guard.every=0"});
  require_trained(run, "sampled", {"compress.guard.every=2"});
  const std::vector<Json> blind = step_lines(run.path("blind"));
  const std::vector<Json> sampled = step_lines(run.path("sampled"));
  REQUIRE(blind.size() == 14);
  REQUIRE(sampled.size() == 14);
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    INFO(sampled[i].dump());
    REQUIRE(sampled[i]["loss"] == blind[i]["loss"]);
    for (const char* axis : {"tensor", "pipeline", "data", "embedding"}) {
      REQUIRE(sampled[i]["axes"][axis]["sent_bytes"] == blind[i]["axes"][axis]["sent_bytes"]);
      REQUIRE(sampled[i]["axes"][axis]["raw_bytes"] == blind[i]["axes"][axis]["raw_bytes"]);
    }
    REQUIRE_FALSE(blind[i].contains("compression"));
    REQUIRE(sampled[i].contains("compression") == (i % 2 == 1));
  }
  require_same_end(run, "blind", "sampled");
  REQUIRE(plan_of(run, "blind") == plan_of(run, "sampled"));
  std::set<std::string> sites;
  for (const Json& row : sampled[1]["compression"]) {
    INFO(row.dump());
    sites.insert(row["site"].get<std::string>());
    REQUIRE(row["elements"] > 0);
    REQUIRE(row["relative_error"] > 0.0);
    REQUIRE(row["residual_norm"] > 0.0);
    REQUIRE(row["cosine"] <= 1.0 + 1e-9);
    const bool pairs = row["site"] == "pipeline_backward" && row["phase"] == "steady";
    REQUIRE(row.contains("activation_cosine") == pairs);
  }
  REQUIRE(sites == std::set<std::string>{
                       "pipeline_forward", "pipeline_backward", "data_gradient", "embedding"});
}

TEST_CASE("a budget tightens codecs and turns them off, in the plan, in the log and in bytes") {
  const TrainingRun run;
  const ProcessResult result = require_trained(run, "run", kBudget);
  REQUIRE_THAT(result.error, Contains("guard: from step 7 low_rank 2 becomes low_rank 4;"));
  REQUIRE_THAT(result.error, Contains("is turned off"));
  const Json plans = plan_of(run, "run");
  REQUIRE(plans.size() > 2);
  REQUIRE(plans[1]["from_step"] == 7);
  for (const Json& row : plans[1]["classes"]) {
    if (row["site"] == "data_gradient") {
      REQUIRE(row["codec"]["rank"] == 4);
      REQUIRE_THAT(row["reason"].get<std::string>(),
                   Contains("in step 4"));  // the first sample that has settled
    }
  }
  const Json& last = plans.back();
  REQUIRE(last["classes"].dump().find("null") != std::string::npos);
  const std::string text = read_file(run.run_dir() + "/plan.txt");
  REQUIRE_THAT(text, Contains("from step 7: ") && Contains("(guard: from step"));
  // What is said to be saved is what the plan in force saves.
  const std::vector<Json> lines = step_lines(run.path("run"));
  for (const char* axis : {"pipeline", "data", "embedding"}) {
    INFO(axis);
    for (const Json& line : lines) {
      REQUIRE(line["axes"][axis]["raw_bytes"] == lines[0]["axes"][axis]["raw_bytes"]);
    }
  }
  const auto sent = [&](std::size_t step) {
    return lines[step - 1]["axes"]["data"]["sent_bytes"].get<double>();
  };
  REQUIRE(sent(1) == sent(6));
  REQUIRE(sent(7) > sent(6));
}

TEST_CASE("a run with a budget that is resumed at any step goes on as the one that was not") {
  const TrainingRun run;
  require_trained(run, "whole", kBudget);
  require_trained(run, "part", with(kBudget, {"run.save_every=1", "run.keep=14"}));
  require_same_end(run, "whole", "part");
  REQUIRE(plan_of(run, "part") == plan_of(run, "whole"));
  const std::vector<Json> whole = step_lines(run.path("whole"));
  // In the sampled step, between it and the change, and after several.
  for (const int step : {4, 5, 6, 7, 12}) {
    INFO("resumed after step " << step);
    const std::string rest = "rest" + std::to_string(step);
    require_trained(
        run, rest, with(kBudget, {"checkpoint.resume_from=" + run.checkpoint(step, "part")}));
    require_same_end(run, rest, "whole");
    REQUIRE(plan_of(run, rest) == plan_of(run, "whole"));
    const std::vector<Json> lines = step_lines(run.path(rest));
    REQUIRE(lines.size() == whole.size() - static_cast<std::size_t>(step));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const Json& same = whole[i + static_cast<std::size_t>(step)];
      REQUIRE(lines[i]["loss"] == same["loss"]);
      REQUIRE(lines[i].value("compression", Json()) == same.value("compression", Json()));
    }
  }
}

TEST_CASE("a run that goes on with other codecs in its config follows the config") {
  const TrainingRun run;
  require_trained(run, "run", with(kBudget, {"run.save_every=7", "run.keep=2"}));
  require_trained(run,
                  "other",
                  {"compress.guard.every=0",
                   R"(compress.embedding={"codec": "cast"})",
                   "checkpoint.resume_from=" + run.checkpoint(7)});
  const Json plans = plan_of(run, "other");
  REQUIRE(plans.size() == 1);
  int seen = 0;
  for (const Json& row : plans[0]["classes"]) {
    if (row["site"] == "embedding") {
      CHECK(row["codec"]["codec"] == "cast");
      ++seen;
    } else if (row["site"] == "data_gradient") {
      CHECK(row["codec"]["rank"] == 2);  // what the guard had made of it was 4
      ++seen;
    }
  }
  CHECK(seen >= 2);
}

TEST_CASE("the plan.json of a run with a budget replays to the same run, and is left as it is") {
  const TrainingRun run;
  require_trained(run, "run", with(kBudget, {"compress.warmup_steps=3"}));
  const Json plans = plan_of(run, "run");
  REQUIRE(plans.size() > 3);
  require_trained(run,
                  "again",
                  with(kBudget,
                       {"compress.guard.max_error=1e-9",
                        "compress.policy=replay",
                        "compress.plan=" + run.run_dir() + "/plan.json"}));
  require_same_end(run, "again", "run");
  REQUIRE(run.metric("loss", "again") == run.metric("loss"));
  REQUIRE(plan_of(run, "again") == plans);
}

}  // namespace slackline
