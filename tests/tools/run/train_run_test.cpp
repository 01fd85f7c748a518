// Whole runs of the binary: what they leave behind, and that a run is a function of its config.

#include <cmath>
#include <filesystem>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;

TEST_CASE("a run leaves config, plan, metrics, events and checkpoints, and learns") {
  const TrainingRun run;
  const ProcessResult result = require_done(run.train({"run.steps=30", "run.save_every=10"}));
  REQUIRE_THAT(result.out, Contains("step 30/30") && Contains("validation loss"));

  const std::vector<double> losses = run.metric("loss");
  REQUIRE(losses.size() == 30);
  REQUIRE(losses.front() == Approx(std::log(257.0)).epsilon(0.02));  // nothing known yet
  REQUIRE(losses.back() < 0.7 * losses.front());
  REQUIRE(run.metric("eval_loss").size() == 10);
  for (const char* name : {"config.resolved.json", "plan.json", "plan.txt"}) {
    REQUIRE(std::filesystem::exists(run.run_dir() + "/" + name));
  }
  // Keep is 2 by default: of steps 10, 20 and 30 the last two stay.
  REQUIRE_FALSE(std::filesystem::exists(run.checkpoint(10)));
  REQUIRE(std::filesystem::exists(run.checkpoint(20)));
  REQUIRE(std::filesystem::exists(run.checkpoint(30)));
}

TEST_CASE("a resumed run gives the bits of one that was never stopped") {
  const std::string precision = GENERATE("precision=fp32", "precision=bf16");
  INFO(precision);
  const TrainingRun run;
  REQUIRE(run.train({precision}).exit_code == 0);
  const std::string weights = run.weights_sha256(run.checkpoint(6));
  const std::vector<double> losses = run.metric("loss");
  const std::vector<double> eval_losses = run.metric("eval_loss");

  std::filesystem::remove_all(run.checkpoint(6));  // as if it had died after step 3
  require_done(run.train({precision}, {"--resume"}));
  REQUIRE(run.weights_sha256(run.checkpoint(6)) == weights);
  REQUIRE(run.metric("loss") == losses);
  REQUIRE(run.metric("eval_loss") == eval_losses);
}

TEST_CASE("thread count and recomputation do not change a bit") {
  const TrainingRun run;
  REQUIRE(run.train_in_shell("OMP_NUM_THREADS=1", {}).exit_code == 0);
  const std::string weights = run.weights_sha256(run.checkpoint(6));
  const std::string other_dir = "run.dir=" + run.path("other");
  REQUIRE(run.train_in_shell("OMP_NUM_THREADS=3", {other_dir}).exit_code == 0);
  REQUIRE(run.weights_sha256(run.checkpoint(6, "other")) == weights);
  REQUIRE(run.train({"model.recompute=block", "run.dir=" + run.path("third")}).exit_code == 0);
  REQUIRE(run.weights_sha256(run.checkpoint(6, "third")) == weights);
}

TEST_CASE("the size of micro-batches changes rounding only") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  REQUIRE(run.train({"batch.micro=8", "run.dir=" + run.path("other")}).exit_code == 0);
  const std::vector<double> losses = run.metric("loss");
  const std::vector<double> other = run.metric("loss", "other");
  for (std::size_t i = 0; i < losses.size(); ++i) {
    // Sums of 256 tokens in another order: some 1e-7 relative, grown over six updates.
    REQUIRE(other[i] == Approx(losses[i]).epsilon(5e-6));
  }
}

TEST_CASE("dropout and recomputation may change on a resume, and dropout then counts") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const double loss = run.metric("loss").back();
  std::filesystem::remove_all(run.checkpoint(6));  // as if it had died after step 3
  require_done(run.train({"model.dropout=0.5", "model.recompute=block"}, {"--resume"}));
  REQUIRE(run.metric("loss").back() > 1.01 * loss);  // half of all activations are gone
}

TEST_CASE("a run with the last step done resumes to nothing, one without checkpoints to step 1") {
  const TrainingRun run;
  const ProcessResult first = require_done(run.train({}, {"--resume"}));
  REQUIRE_THAT(first.error, Contains("starting at step 1"));
  const ProcessResult again = require_done(run.train({}, {"--resume"}));
  REQUIRE_THAT(again.error, Contains("all 6 steps are done"));
  REQUIRE(run.metric("loss").size() == 6);
}

TEST_CASE("a directory where a checkpoint would be saved is refused before the first step") {
  const TrainingRun run;
  REQUIRE(run.train({"run.steps=2"}).exit_code == 0);
  std::filesystem::create_directory(run.checkpoint(4));  // as a copy that was cut short leaves it
  const ProcessResult result = run.train({"run.steps=5", "run.save_every=2"}, {"--resume"});
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.error, Contains(run.checkpoint(4)) && Contains("move it away"));
  CHECK(run.metric("loss").size() == 2);
}

TEST_CASE("a reader of the progress that goes away does not end the run") {
  const TrainingRun run;
  // The shell's own code is that of `true`.
  const ProcessResult result = run.train_in_shell("", {"run.steps=20"}, "| true");
  INFO(result.error);
  CHECK(std::filesystem::exists(run.checkpoint(20)));
}

TEST_CASE("a resume says that the record ends before its checkpoint, and goes on") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string path = run.run_dir() + "/metrics.jsonl";
  const std::string record = read_file(path);
  write_file_atomically(path, record.substr(0, record.find("{\"step\": 3,")));
  const ProcessResult result = run.train({"run.steps=8"}, {"--resume"});
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.error, Contains("ends with step 2") && Contains("of step 6"));
  const ProcessResult whole = run.train({"run.steps=10"}, {"--resume"});
  CHECK(whole.exit_code == 0);
  CHECK_THAT(whole.error, !Contains("metrics.jsonl ends"));
}

TEST_CASE("a run is extended past the epochs its order was built for") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  // An epoch has some 90 steps.
  require_done(run.train({"run.steps=200", "run.eval_every=0", "run.save_every=0"}, {"--resume"}));
  REQUIRE(run.metric("loss").size() == 200);
}

TEST_CASE("another run's checkpoint gives weights, or the whole state, to a new directory") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string from_three = run.checkpoint(3);
  require_done(run.train({"checkpoint.resume_from=" + from_three, "run.dir=" + run.path("other")}));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "other")) == run.weights_sha256(run.checkpoint(6)));
  REQUIRE(run.metric("loss", "other").size() == 3);

  REQUIRE(run.train({"checkpoint.init_from=" + run.checkpoint(6),
                     "run.dir=" + run.path("third"),
                     "optimizer.warmup_steps=0",
                     "run.steps=1"})
              .exit_code == 0);
  REQUIRE(run.metric("loss", "third").size() == 1);
  REQUIRE(run.metric("loss", "third")[0] < run.metric("loss")[0] - 0.3);
}

TEST_CASE("SIGTERM, SIGINT and SIGUSR1 end with code 6 after saving, and the run goes on") {
  const std::string signal = GENERATE("TERM", "INT", "USR1");
  INFO(signal);
  const TrainingRun run;
  // The subshell waits for the first line of metrics, so that the signal arrives while training.
  const std::string after = "& pid=$!; while [ ! -s " + run.run_dir() +
                            "/metrics.jsonl ]; do sleep 0.02; done; kill -" + signal +
                            " $pid; wait $pid";
  const ProcessResult stopped =
      run.train_in_shell("", {"run.steps=100000", "run.save_every=0", "run.eval_every=0"}, after);
  INFO(stopped.error);
  REQUIRE(stopped.exit_code == 6);
  const auto steps = static_cast<int>(run.metric("loss").size());
  REQUIRE(steps >= 1);
  REQUIRE(std::filesystem::exists(run.checkpoint(steps)));
  require_done(run.train({"run.steps=" + std::to_string(steps + 2),
                          "run.save_every=0",
                          "run.eval_every=0",
                          "run.log_every=1000"},
                         {"--resume"}));
  REQUIRE(run.metric("loss").size() == static_cast<std::size_t>(steps) + 2);
}

TEST_CASE("an evaluation that a signal cuts short is made up for by the resumed run") {
  const TrainingRun run;
  REQUIRE(run.train({"run.steps=3", "run.dir=" + run.path("whole")}).exit_code == 0);
  const std::string after = "& pid=$!; while [ ! -s " + run.run_dir() +
                            "/metrics.jsonl ]; do sleep 0.02; done; kill -TERM $pid; wait $pid";
  const std::string steps = GENERATE("run.steps=1", "run.steps=3");
  INFO(steps);
  const ProcessResult stopped =
      run.train_in_shell("", {steps, "run.eval_every=1", "run.eval_batches=100000"}, after);
  INFO(stopped.error);
  REQUIRE(stopped.exit_code == 6);
  REQUIRE(std::filesystem::exists(run.checkpoint(1)));
  REQUIRE(run.metric("eval_loss").empty());

  REQUIRE(run.train({"run.steps=3", "run.eval_every=1"}, {"--resume"}).exit_code == 0);
  REQUIRE(run.metric("eval_loss").size() == 3);
  REQUIRE(run.metric("eval_loss").back() == run.metric("eval_loss", "whole").back());
  REQUIRE(run.metric("loss") == run.metric("loss", "whole"));
}

// Shadow memory and red zones are not in the plan.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("the peak of a run's memory is within 2 % of the plan") {
  const TrainingRun run;
  const std::string precision = GENERATE("precision=fp32", "precision=bf16");
  const std::string recompute = GENERATE("model.recompute=none", "model.recompute=block");
  const std::vector<std::string> sizes = {precision,
                                          recompute,
                                          "model.layers=4",
                                          "model.hidden=512",
                                          "model.heads=8",
                                          "model.vocab=20000",
                                          "model.dropout=0",
                                          "run.steps=2",
                                          "run.eval_every=0"};
  const ProcessResult trained = require_done(run.train(sizes));
  write_file_atomically(run.path("resolved.json"), run.train(sizes, {"--print-config"}).out);
  const ProcessResult plan = run_slackline({"plan", run.path("resolved.json"), "--json"});
  const std::string key = "\"memory_bytes\": ";
  const double planned = std::stod(plan.out.substr(plan.out.find(key) + key.size()));
  INFO(plan.out);
  REQUIRE(static_cast<double>(trained.peak_bytes) == Approx(planned).epsilon(0.02));
}
#endif

TEST_CASE("--print-config and --validate run nothing") {
  const TrainingRun run;
  const ProcessResult printed = require_done(run.train({"optimizer.lr=0.5"}, {"--print-config"}));
  REQUIRE_THAT(printed.out, Contains("\"lr\": 0.5") && Contains("\"beta2\": 0.95"));
  REQUIRE(run.train({}, {"--validate"}).exit_code == 0);
  REQUIRE_FALSE(std::filesystem::exists(run.run_dir()));
}

}  // namespace slackline
