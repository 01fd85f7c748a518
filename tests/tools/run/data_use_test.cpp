// Which data sets a run reads how often, and where it says so.

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

// The corpus of a TrainingRun and a tenth of it, both whole, without weights unless given.
class TwoCorpora {
 public:
  TwoCorpora() {
    const std::string text = read_file(run.path("corpus.jsonl"));
    std::size_t end = 0;
    for (int line = 0; line < 4; ++line) {
      end = text.find('\n', end) + 1;
    }
    write_file_atomically(run.path("small.jsonl"), text.substr(0, end));
    require_done(run_slackline({"prepare",
                                "--input",
                                run.path("small.jsonl"),
                                "--tokenizer",
                                "byte",
                                "--out",
                                run.path("small")}));
  }

  [[nodiscard]] std::string train_key(const std::string& first_weight,
                                      const std::string& second_weight) const {
    return R"(data.train=[{"path": ")" + run.path("corpus") + R"(", "weight": )" + first_weight +
           R"(}, {"path": ")" + run.path("small") + R"(", "weight": )" + second_weight + "}]";
  }

  // Assignments for a run without weights.
  [[nodiscard]] std::vector<std::string> silent() const {
    return {train_key("null", "null"), "data.split=null", "run.eval_every=0", "run.steps=30"};
  }

  TrainingRun run;
};

Json data_json(const TrainingRun& run, const std::string& directory = "run") {
  return Json::parse(read_file(run.path(directory) + "/data.json"))["train"];
}

}  // namespace

TEST_CASE("data sets without weights are read equally often, and the run says how often") {
  const TwoCorpora corpora;
  const TrainingRun& run = corpora.run;
  const ProcessResult trained = require_done(run.train(corpora.silent()));
  const Json rows = data_json(run);
  REQUIRE(rows.size() == 2);
  REQUIRE(rows[0]["path"] == run.path("corpus"));
  REQUIRE(rows[0]["tokens"].get<double>() ==
          Approx(10.0 * rows[1]["tokens"].get<double>()).epsilon(0.02));
  REQUIRE(rows[0]["samples"].get<int>() + rows[1]["samples"].get<int>() == 240);
  // Shares are whole samples, and one of some 20 is 5 %.
  REQUIRE(rows[0]["epochs"].get<double>() == Approx(rows[1]["epochs"].get<double>()).epsilon(0.1));
  REQUIRE_THAT(trained.error,
               Contains("data set") && Contains("epochs") && Contains(run.path("small") + " "));
  REQUIRE(trained.error.find("epochs") < trained.error.find("step 1"));

  // config.resolved.json has the weights, and gives the same run.
  const std::string resolved = run.run_dir() + "/config.resolved.json";
  REQUIRE(run_slackline({"train", resolved, "--set", "run.dir=" + run.path("again")}).exit_code ==
          0);
  REQUIRE(run.weights_sha256(run.checkpoint(30, "again")) ==
          run.weights_sha256(run.checkpoint(30)));
}

TEST_CASE("plan and report have the table, and more than four epochs are a warning everywhere") {
  const TwoCorpora corpora;
  const TrainingRun& run = corpora.run;
  const std::vector<std::string> even = {corpora.train_key("1", "1"), "run.steps=100"};
  const ProcessResult trained = require_done(run.train(even));
  const std::string warning = "data.train.1: the run reads this data set ";
  REQUIRE_THAT(trained.error, Contains(warning));
  REQUIRE(data_json(run)[1]["samples"] == 400);

  const std::string resolved = run.run_dir() + "/config.resolved.json";
  const ProcessResult plan = require_done(run_slackline({"plan", resolved}));
  REQUIRE_THAT(plan.out, Contains("data set") && Contains("warning: " + warning));
  REQUIRE(Json::parse(run_slackline({"plan", resolved, "--json"}).out)["data"] == data_json(run));

  REQUIRE(run_slackline({"report", run.run_dir()}).exit_code == 0);
  const std::string page = read_file(run.run_dir() + "/report.html");
  REQUIRE_THAT(page, Contains("Training data") && Contains(warning) && Contains("50.0 %"));

  std::filesystem::remove(run.path("small.idx"));
  const ProcessResult elsewhere = require_done(run_slackline({"plan", resolved}));
  REQUIRE_THAT(elsewhere.out, !Contains("data set"));
}

TEST_CASE("a resume without weights keeps those of its checkpoint, and others are refused") {
  const TwoCorpora corpora;
  const TrainingRun& run = corpora.run;
  const std::vector<std::string> silent = corpora.silent();
  REQUIRE(run.train(silent).exit_code == 0);
  const Json rows = data_json(run);
  require_done(run.train(with(silent, {"run.steps=32", "run.save_every=1"}), {"--resume"}));
  REQUIRE(data_json(run)[0]["share"] == rows[0]["share"]);

  require_refusal(
      run.train(with(silent, {corpora.train_key("1", "1"), "run.steps=34"}), {"--resume"}),
      2,
      "data.train weights: must stay what it was");
  require_refusal(
      run.train(with(silent,
                     {R"(data.train=[{"path": ")" + run.path("corpus") + R"("}])", "run.steps=34"}),
                {"--resume"}),
      2,
      "data.train: must name as many data sets");
}

TEST_CASE("a run from an older checkpoint without weights keeps equal ones, and says so") {
  const TwoCorpora corpora;
  const TrainingRun& run = corpora.run;
  const std::vector<std::string> even =
      with(corpora.silent(), {corpora.train_key("1", "1"), "data.split=[0.95, 0.05, 0]"});
  REQUIRE(run.train(with(even, {"run.save_every=20"})).exit_code == 0);
  const std::string weights = run.weights_sha256(run.checkpoint(30));
  std::filesystem::remove_all(run.checkpoint(30));
  make_older(run.checkpoint(20));
  const ProcessResult resumed = require_done(run.train(corpora.silent(), {"--resume"}));
  REQUIRE_THAT(resumed.error, Contains("weights of data sets = 1"));
  REQUIRE(run.weights_sha256(run.checkpoint(30)) == weights);
  REQUIRE(data_json(run)[1]["share"] == 0.5);
}

}  // namespace slackline
