// Training with device cuda, through the binary: on a GPU in preset cuda, elsewhere with kernels
// that run on the processor (tests/emulated_cuda).

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tools/training_run.h"

namespace slackline {

namespace {

ProcessResult train_on_cuda(const TrainingRun& run,
                            const std::string& name,
                            const std::vector<std::string>& assignments = {},
                            const std::vector<std::string>& options = {}) {
  ProcessResult result = run_process(
      SL_CUDA_BINARY,
      run.arguments(with({"device=cuda", "run.dir=" + run.path(name)}, assignments), options));
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  return result;
}

void train_on_cpu(const TrainingRun& run, const std::vector<std::string>& assignments = {}) {
  const ProcessResult result = run.train(with({"run.dir=" + run.path("cpu")}, assignments));
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
}

// The largest relative difference of two lists of numbers.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE_FALSE(a.empty());
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] / b[i] - 1.0));
  }
  return largest;
}

// Losses of 6 steps in fp32: sums in other orders, no more (CONTRACTS section 7).
constexpr double kLoss = 2e-6;
// Norms are of sums over all gradients; a step's update amplifies what differs.
constexpr double kNorm = 2e-5;

}  // namespace

TEST_CASE("a run on the CUDA device learns what a run on the CPU learns") {
  const TrainingRun run;
  train_on_cpu(run);
  train_on_cuda(run, "cuda");
  CHECK(difference(run.metric("loss", "cuda"), run.metric("loss", "cpu")) <= kLoss);
  CHECK(difference(run.metric("valid_loss", "cuda"), run.metric("valid_loss", "cpu")) <= kLoss);
  CHECK(difference(run.metric("grad_norm", "cuda"), run.metric("grad_norm", "cpu")) <= kNorm);
}

TEST_CASE("a run on the CUDA device gives the same bits again, and after a resume") {
  const TrainingRun run;
  train_on_cuda(run, "first");
  train_on_cuda(run, "second", {"run.steps=3"});
  train_on_cuda(run, "second", {}, {"--resume"});
  CHECK(run.weights_sha256(run.checkpoint(6, "first")) ==
        run.weights_sha256(run.checkpoint(6, "second")));
}

TEST_CASE("a checkpoint of either device goes on on the other") {
  const TrainingRun run;
  train_on_cpu(run);
  const std::vector<double> losses = run.metric("loss", "cpu");
  train_on_cuda(run, "there", {"run.steps=3"});
  const ProcessResult back =
      run.train({"run.dir=" + run.path("there")}, {"--resume"});  // on the CPU
  INFO(back.error);
  REQUIRE(back.exit_code == 0);
  CHECK(difference(run.metric("loss", "there"), losses) <= kLoss);
  REQUIRE(run.train({"run.dir=" + run.path("here"), "run.steps=3"}).exit_code == 0);
  train_on_cuda(run, "here", {}, {"--resume"});
  CHECK(difference(run.metric("loss", "here"), losses) <= kLoss);
}

TEST_CASE("ranks that share a CUDA device give one rank's numbers on every layout") {
  const TrainingRun run;
  train_on_cuda(run, "one");
  const std::vector<double> losses = run.metric("loss", "one");
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.tensor=2"},
      {"parallel.pipeline=2"},
      {"parallel.data=2"},
      {"parallel.tensor=2", "parallel.sequence_parallel=true"},
      {"parallel.data=2", "parallel.data_strategy=zero1"}};
  for (const std::vector<std::string>& layout : layouts) {
    INFO(layout.back());
    const std::string name = "layout " + layout.back();
    train_on_cuda(run, name, layout, {"--ranks", "2"});
    CHECK(difference(run.metric("loss", name), losses) <= kLoss);
  }
}

}  // namespace slackline
