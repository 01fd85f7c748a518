// Settings that a config leaves open: decided once, kept in checkpoints, written down with the run.

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/older_checkpoint.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;
using testing::require_refusal;
using Json = nlohmann::ordered_json;

namespace {

Json resolved_config(const TrainingRun& run, const std::string& directory = "run") {
  return Json::parse(read_file(run.path(directory) + "/config.resolved.json"));
}

// Tokens of the first data set that the run trains on, as its checkpoint has them.
std::int64_t training_tokens(const std::string& checkpoint) {
  const Json manifest = Json::parse(read_file(checkpoint + "/manifest.json"));
  return manifest["data"]["epochs"][0][0].get<std::int64_t>();
}

const std::vector<std::string> kOpen = {"data.split=null", "run.eval_every=0"};

}  // namespace

TEST_CASE("tables decay unless the config, or the checkpoint of a silent one, says no") {
  const std::string silent = "optimizer.decay_embeddings=null";
  const TrainingRun run;
  REQUIRE(run.train({silent}).exit_code == 0);
  REQUIRE(run.train({"optimizer.decay_embeddings=true", "run.dir=" + run.path("yes")}).exit_code ==
          0);
  REQUIRE(run.train({"run.dir=" + run.path("no")}).exit_code == 0);
  const std::string no = run.weights_sha256(run.checkpoint(6, "no"));
  REQUIRE(run.weights_sha256(run.checkpoint(6)) == run.weights_sha256(run.checkpoint(6, "yes")));
  REQUIRE(run.weights_sha256(run.checkpoint(6)) != no);
  REQUIRE(resolved_config(run)["optimizer"]["decay_embeddings"] == true);

  const bool older = GENERATE(false, true);
  INFO("older " << older);
  std::filesystem::remove_all(run.checkpoint(6, "no"));
  if (older) {
    make_older(run.checkpoint(3, "no"));
  }
  const ProcessResult resumed =
      require_done(run.train({silent, "run.dir=" + run.path("no")}, {"--resume"}));
  REQUIRE((resumed.error.find("optimizer.decay_embeddings = false") != std::string::npos) == older);
  REQUIRE(run.weights_sha256(run.checkpoint(6, "no")) == no);
  REQUIRE(resolved_config(run, "no")["optimizer"]["decay_embeddings"] == false);
}

TEST_CASE("a resume may turn the decay of tables on, also of an older checkpoint") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string no = run.weights_sha256(run.checkpoint(6));
  std::filesystem::remove_all(run.checkpoint(6));
  make_older(run.checkpoint(3));
  REQUIRE(run.train({"optimizer.decay_embeddings=true"}, {"--resume"}).exit_code == 0);
  REQUIRE(run.weights_sha256(run.checkpoint(6)) != no);
}

TEST_CASE("files are trained on whole where nothing is evaluated, and a resume keeps that") {
  const TrainingRun run;
  REQUIRE(run.train(kOpen).exit_code == 0);
  REQUIRE(run.train({"data.split=[1, 0, 0]", "run.eval_every=0", "run.dir=" + run.path("whole")})
              .exit_code == 0);
  REQUIRE(run.train({"data.split=null", "run.dir=" + run.path("split")}).exit_code == 0);
  const std::int64_t whole = training_tokens(run.checkpoint(6));
  REQUIRE(training_tokens(run.checkpoint(6, "whole")) == whole);
  REQUIRE(training_tokens(run.checkpoint(6, "split")) ==
          Approx(0.95 * static_cast<double>(whole)).epsilon(1e-3));
  REQUIRE(resolved_config(run)["data"]["split"] == Json({1.0, 0.0, 0.0}));
  REQUIRE(resolved_config(run, "split")["data"]["split"] == Json({0.95, 0.05, 0.0}));

  require_refusal(run.train({"data.split=null", "run.steps=8", "run.eval_every=2"}, {"--resume"}),
                  2,
                  "run.eval_every: needs data.valid");
  REQUIRE(run.train({"run.steps=8"}, {"--resume"}).exit_code == 2);  // a split, given
  const std::string valid = R"(data.valid=[{"path": ")" + run.path("corpus") + R"("}])";
  REQUIRE(run.train({"data.split=null", "run.steps=8", valid}, {"--resume"}).exit_code == 0);
  REQUIRE(run.metric("eval_loss").size() == 2);  // after steps 6, which was not evaluated, and 8

  REQUIRE(run.train(with(kOpen, {"run.steps=8", "run.dir=" + run.path("split")}), {"--resume"})
              .exit_code == 0);
  REQUIRE(training_tokens(run.checkpoint(8, "split")) ==
          training_tokens(run.checkpoint(6, "split")));
}

TEST_CASE("validation files come to a run with a split, whose training data stay") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);  // [0.8, 0.2, 0]
  const std::int64_t tokens = training_tokens(run.checkpoint(6));
  const std::string valid = R"(data.valid=[{"path": ")" + run.path("corpus") + R"("}])";
  int steps = 6;
  const auto goes_on = [&](const std::vector<std::string>& settings) {
    steps += 2;
    require_done(run.train(with(settings, {"run.steps=" + std::to_string(steps)}), {"--resume"}));
    REQUIRE(training_tokens(run.checkpoint(steps)) == tokens);
    REQUIRE(resolved_config(run)["data"]["split"] == Json({0.8, 0.2, 0.0}));
  };
  goes_on({valid});
  goes_on({valid, "data.split=null"});
  goes_on({"data.split=null"});
  require_refusal(run.train({valid, "data.split=[0.7, 0.3, 0]", "run.steps=14"}, {"--resume"}),
                  2,
                  "got [0.7,0.3,0.0]");
}

TEST_CASE("shares and weights with the ratios of before, but for rounding, are the same") {
  const TrainingRun run;
  REQUIRE(run.train({"data.split=[0.7, 0.2, 0.1]"}).exit_code == 0);
  const std::int64_t tokens = training_tokens(run.checkpoint(6));
  require_done(run.train({"data.split=[7, 2, 1]", "run.steps=8"}, {"--resume"}));
  REQUIRE(training_tokens(run.checkpoint(8)) == tokens);
  REQUIRE(run.train({"data.split=[7, 2, 1.1]", "run.steps=9"}, {"--resume"}).exit_code == 2);
}

TEST_CASE("a resume on as many other tokens is refused, and the same ones may have moved") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string text = read_file(run.path("corpus.jsonl"));
  const auto prepare = [&](const std::string& name, const std::string& documents) {
    write_file_atomically(run.path(name + ".jsonl"), documents);
    require_done(run_slackline({"prepare",
                                "--input",
                                run.path(name + ".jsonl"),
                                "--tokenizer",
                                "byte",
                                "--out",
                                run.path(name)}));
  };
  std::string other = text;
  other[other.find("line")] = 'm';
  prepare("moved", text);
  prepare("other", other);
  const auto resume = [&](const std::string& name, const std::string& steps) {
    return run.train({"data.train.0.path=" + run.path(name), "run.steps=" + steps}, {"--resume"});
  };
  require_refusal(resume("other", "8"), 2, "continues a run on other data");
  REQUIRE(run.metric("loss").size() == 6);
  require_done(resume("moved", "8"));

  make_older(run.checkpoint(8));  // which does not say what it was trained on
  require_done(resume("other", "9"));
  require_refusal(resume("moved", "10"), 2, "continues a run on other data");
}

TEST_CASE("a tokenizer that nothing could read again is refused before anything is trained") {
  const TrainingRun run;
  const std::string tokenizer = run.path("corpus") + ".tokenizer.json";
  write_file_atomically(tokenizer, R"({"type": "byte", "vocab": )");
  require_refusal(run.train(), 3, "corpus.tokenizer.json");
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir() + "/metrics.jsonl"));
}

TEST_CASE("a run from an older checkpoint keeps the split that was the default, and says so") {
  const TrainingRun run;
  REQUIRE(run.train({"data.split=[0.95, 0.05, 0]", "run.eval_every=0"}).exit_code == 0);
  make_older(run.checkpoint(6));
  const ProcessResult resumed = require_done(run.train(with(kOpen, {"run.steps=8"}), {"--resume"}));
  REQUIRE_THAT(resumed.error, Contains("data.split = [0.95,0.05,0.0]"));
  REQUIRE(training_tokens(run.checkpoint(8)) == training_tokens(run.checkpoint(6)));
}

TEST_CASE("an older run with validation files, which trained on whole files, goes on") {
  const TrainingRun run;
  const std::string valid = R"(data.valid=[{"path": ")" + run.path("corpus") + R"("}])";
  REQUIRE(run.train({"data.split=null", valid}).exit_code == 0);
  make_older(run.checkpoint(6), Validation::files);
  const ProcessResult resumed =
      require_done(run.train({"data.split=null", valid, "run.steps=8"}, {"--resume"}));
  REQUIRE_THAT(resumed.error, !Contains("data.split"));
}

}  // namespace slackline
