// Training with device cuda, through the binary: on a GPU in preset cuda, elsewhere with kernels
// that run on the processor (tests/emulated_cuda).

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/support/places.h"
#include "tests/support/skipped.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

namespace {

using testing::require_done;

std::string cuda_binary() {
  return test_place("SLACKLINE_BINARY", SL_CUDA_BINARY);
}

ProcessResult train_on_cuda(const TrainingRun& run,
                            const std::string& name,
                            const std::vector<std::string>& assignments = {},
                            const std::vector<std::string>& options = {}) {
  return require_done(run_process(
      cuda_binary(),
      run.arguments(with({"device=cuda", "run.dir=" + run.path(name)}, assignments), options)));
}

// Where NCCL adds gradients up, its sums lie apart.
void check_that_pools_were_enough(const ProcessResult& run, int ranks) {
  if (run.error.find("between devices: NCCL") != std::string::npos) {
    return;
  }
  int pools = 0;
  for (std::size_t at = run.error.find("in use; at most "); at != std::string::npos;
       at = run.error.find("in use; at most ", at + 1)) {
    CHECK(run.error.substr(at, 31) == "in use; at most 0 bytes apart f");
    ++pools;
  }
  CHECK(pools == ranks);
}

void train_on_cpu(const TrainingRun& run, const std::vector<std::string>& assignments = {}) {
  require_done(run.train(with({"run.dir=" + run.path("cpu")}, assignments)));
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

const std::vector<std::string> kLong = {
    "run.steps=50", "run.eval_every=25", "run.save_every=0", "optimizer.lr=1e-3"};

// Losses of 50 steps in fp32: sums in other orders, no more (docs/numerics.md).
constexpr double kLoss = 2e-6;
// Activations are rounded to 8 bits: a sum in another order can round the other way, by 2^-8 of a
// value, and few of those add up in the mean of 256 tokens' losses.
constexpr double kBf16Loss = 1e-3;
// Codecs make small differences larger: a rounding decides which elements are sent, or which
// directions a factor has.
constexpr double kCompressedLoss = 1e-4;
// Norms are of sums over all gradients; a step's update amplifies what differs.
constexpr double kNorm = 2e-5;

}  // namespace

TEST_CASE("a run on the CUDA device learns what a run on the CPU learns") {
  const TrainingRun run;
  train_on_cpu(run, kLong);
  train_on_cuda(run, "cuda", kLong);
  CHECK(difference(run.metric("loss", "cuda"), run.metric("loss", "cpu")) <= kLoss);
  CHECK(difference(run.metric("eval_loss", "cuda"), run.metric("eval_loss", "cpu")) <= kLoss);
  CHECK(difference(run.metric("grad_norm", "cuda"), run.metric("grad_norm", "cpu")) <= kNorm);
}

TEST_CASE("a run in bf16 on the CUDA device learns what a run on the CPU learns") {
  const TrainingRun run;
  train_on_cpu(run, with(kLong, {"precision=bf16"}));
  train_on_cuda(run, "cuda", with(kLong, {"precision=bf16"}));
  CHECK(difference(run.metric("loss", "cuda"), run.metric("loss", "cpu")) <= kBf16Loss);
}

TEST_CASE("a run on the CUDA device gives the same bits again, and after a resume") {
  const TrainingRun run;
  train_on_cuda(run, "first");
  train_on_cuda(run, "again");
  train_on_cuda(run, "rest", {"checkpoint.resume_from=" + run.checkpoint(3, "first")});
  const std::string weights = run.weights_sha256(run.checkpoint(6, "first"));
  CHECK(run.weights_sha256(run.checkpoint(6, "again")) == weights);
  CHECK(run.weights_sha256(run.checkpoint(6, "rest")) == weights);
}

TEST_CASE("a checkpoint of either device goes on on the other") {
  const TrainingRun run;
  train_on_cpu(run);
  train_on_cuda(run, "cuda");
  const std::vector<double> whole = run.metric("loss", "cpu");
  const std::vector<double> losses(whole.begin() + 3, whole.end());
  require_done(run.train({"run.dir=" + run.path("there"),
                          "checkpoint.resume_from=" + run.checkpoint(3, "cuda")}));  // on the CPU
  CHECK(difference(run.metric("loss", "there"), losses) <= kLoss);
  train_on_cuda(run, "here", {"checkpoint.resume_from=" + run.checkpoint(3, "cpu")});
  CHECK(difference(run.metric("loss", "here"), losses) <= kLoss);
}

TEST_CASE("ranks that share a CUDA device give one rank's numbers on every layout") {
  const TrainingRun run;
  train_on_cuda(run, "one");
  const std::vector<double> losses = run.metric("loss", "one");

  struct Layout {
    std::string ranks;
    std::vector<std::string> assignments;
  };

  const std::vector<Layout> layouts = {
      {"2", {"parallel.tensor=2"}},
      {"2", {"parallel.pipeline=2"}},
      {"2", {"parallel.data=2"}},
      {"2", {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
      {"2", {"parallel.data=2", "parallel.data_strategy=zero1"}},
      {"2", {"parallel.data=2", "parallel.data_strategy=zero2", "batch.micro=2"}},
      {"4", {"parallel.data=4", "parallel.data_strategy=zero3", "batch.micro=1"}},
      {"4", {"parallel.data=4", "parallel.group=2", "parallel.data_strategy=IGG", "batch.micro=1"}},
      {"4", {"parallel.data=4", "parallel.group=2", "parallel.data_strategy=NIG", "batch.micro=1"}},
      {"8", {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "batch.micro=2"}}};
  for (const Layout& layout : layouts) {
    std::string name = layout.ranks;
    for (const std::string& assignment : layout.assignments) {
      name += " " + assignment;
    }
    INFO(name);
    const ProcessResult result = train_on_cuda(
        run, name, with(layout.assignments, {"network.transport=host"}), {"--ranks", layout.ranks});
    CHECK(difference(run.metric("loss", name), losses) <= kLoss);
    check_that_pools_were_enough(result, std::stoi(layout.ranks));
  }
}

// They read neither tokens nor targets.
TEST_CASE("stages between the first and the last give one rank's numbers") {
  const TrainingRun run;
  const std::vector<std::string> layers = {"model.layers=4", "batch.micro=1"};
  for (const std::string recompute : {"none", "block"}) {
    const std::vector<std::string> job = with(layers, {"model.recompute=" + recompute});
    INFO(recompute);
    check_that_pools_were_enough(train_on_cuda(run, "one-" + recompute, job), 1);
    check_that_pools_were_enough(
        train_on_cuda(
            run, "four-" + recompute, with(job, {"parallel.pipeline=4"}), {"--ranks", "4"}),
        4);
    CHECK(difference(run.metric("loss", "four-" + recompute),
                     run.metric("loss", "one-" + recompute)) <= kLoss);
    CHECK(difference(run.metric("eval_loss", "four-" + recompute),
                     run.metric("eval_loss", "one-" + recompute)) <= kLoss);
  }
  // What is made again is what was there, bit for bit.
  CHECK(run.metric("loss", "one-block") == run.metric("loss", "one-none"));
}

TEST_CASE("network.transport can have the host copy what devices send each other") {
  const TrainingRun run;
  const ProcessResult by_host =
      train_on_cuda(run, "host", {"parallel.data=2", "network.transport=host"}, {"--ranks", "2"});
  CHECK_THAT(by_host.error, Catch::Contains("copies on the host: network.transport says so"));
}

// With fewer devices than ranks NCCL is refused, and the test ends there.
TEST_CASE("ranks that have a device each give one rank's numbers by NCCL", "[devices]") {
  const TrainingRun run;
  train_on_cuda(run, "one", {"batch.micro=1"});
  const std::vector<std::vector<std::string>> layouts = {
      {"2", "parallel.tensor=2"},
      {"2", "parallel.pipeline=2"},
      {"2", "parallel.data=2", "parallel.data_strategy=zero1"},
      {"4", "parallel.data=4"},
      {"8", "parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2"}};
  for (const std::vector<std::string>& layout : layouts) {
    const std::string name = "nccl " + layout[0] + " " + layout[1];
    INFO(name);
    std::vector<std::string> job = with({layout.begin() + 1, layout.end()},
                                        {"device=cuda", "batch.micro=1", "network.transport=nccl"});
    job.push_back("run.dir=" + run.path(name));
    const ProcessResult result =
        run_process(cuda_binary(), run.arguments(job, {"--ranks", layout[0]}));
    if (result.exit_code == 2) {
      CHECK_THAT(
          result.error,
          Catch::Contains("network.transport: must be \"auto\" or \"host\" where ranks share") &&
              Catch::Contains("as there are devices, "));
      testing::skip_test("NCCL is not tried with " + layout[0] +
                         " ranks or more: there are fewer devices");
      return;
    }
    require_done(result);
    CHECK_THAT(result.error, Catch::Contains("between devices: NCCL"));
    CHECK(difference(run.metric("loss", name), run.metric("loss", "one")) <= kLoss);
  }
}

// Every kind of compressed message between 2 x 2 ranks.
const std::vector<std::string> kCompressed = {
    "model.layers=4",
    "batch.micro=1",
    "optimizer.lr=1e-3",
    "parallel.pipeline=2",
    "parallel.data=2",
    "compress.policy=all",
    R"(compress.pipeline_backward={"codec": "low_rank", "rank": 2, "error_feedback": "lazy"})",
    R"(compress.pipeline_forward={"codec": "quantize", "bits": 8})",
    R"(compress.data_gradient={"codec": "low_rank", "rank": 2, "error_feedback": "immediate"})",
    R"(compress.embedding={"codec": "top_k", "ratio": 0.2, "error_feedback": "immediate"})"};

#ifdef SL_MPIEXEC
// With `more` in the processes' config, of which they are to say `said`, unless that is empty.
void require_bits_of_threads(const std::vector<std::string>& more, const std::string& said) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const TrainingRun run;

  struct Layout {
    std::string ranks;
    std::vector<std::string> assignments;
  };

  const std::vector<Layout> layouts = {
      {"2", {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
      {"4",
       {"batch.micro=1",
        "parallel.pipeline=2",
        "parallel.data=2",
        "parallel.data_strategy=zero1",
        "run.eval_every=2"}},
      {"2",
       {"model.layers=4",
        "batch.micro=1",
        "parallel.pipeline=2",
        "parallel.schedule=interleaved",
        "parallel.chunks=2"}},
      {"4", kCompressed},
      {"2",
       {"batch.micro=1",
        "parallel.pipeline=2",
        "compress.policy=all",
        R"(compress.pipeline_forward={"codec": "top_k", "ratio": 0.3})"}}};
  int number = 0;
  for (const Layout& layout : layouts) {
    const std::string name = std::to_string(number++);
    INFO("layout " << name);
    train_on_cuda(run, name + "-threads", layout.assignments, {"--ranks", layout.ranks});
    std::vector<std::string> command = {
        "--oversubscribe", "--bind-to", "none", "-np", layout.ranks, cuda_binary()};
    const std::vector<std::string> arguments = run.arguments(
        with(with({"device=cuda", "run.dir=" + run.path(name)}, layout.assignments), more), {});
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ProcessResult result =
        require_done(run_process(test_place("SLACKLINE_MPIRUN", SL_MPIEXEC), command));
    CHECK_THAT(result.error, Catch::Contains(said));
    CHECK(run.metric("loss", name) == run.metric("loss", name + "-threads"));
    CHECK(run.weights_sha256(run.checkpoint(6, name)) ==
          run.weights_sha256(run.checkpoint(6, name + "-threads")));
  }
}

TEST_CASE("ranks that are processes give the bits of threads") {
  require_bits_of_threads({}, "");
}

TEST_CASE("ranks whose streams wait for transfers give the bits of threads") {
  if (cuda_binary().find("emulated") == std::string::npos) {
    testing::skip_test("streams that wait did not go on when this was tried on a card");
    return;
  }
  require_bits_of_threads({"run.stream_waits=true"}, "streams wait for transfers from here on");
}
#endif

TEST_CASE("passes that are graphs give the same bits, and dropout keeps them from being any") {
  const TrainingRun run;

  struct Job {
    std::string ranks;
    std::vector<std::string> assignments;
    bool captures = true;
  };

  const std::vector<std::string> four = {"batch.micro=2", "model.dropout=0", "run.eval_every=2"};
  const std::vector<Job> jobs = {
      {"1", four},
      {"1", with(four, {"precision=bf16", "model.recompute=block"})},
      {"2", with(four, {"parallel.pipeline=2"})},
      {"2", with(four, {"parallel.pipeline=2", "parallel.schedule=zb_h1"})},
      {"2", with(four, {"parallel.data=2", "parallel.data_strategy=zero1", "batch.micro=1"})},
      {"4", with(kCompressed, {"model.dropout=0"})},
      {"1", {"batch.micro=2", "model.dropout=0.1", "run.eval_every=0"}, false},
  };
  int number = 0;
  for (const Job& job : jobs) {
    const std::string name = std::to_string(number++);
    INFO("job " << name);
    const std::vector<std::string> ranks = {"--ranks", job.ranks};
    train_on_cuda(run, name, job.assignments, ranks);
    const ProcessResult graphs = train_on_cuda(
        run, name + "-graphs", with(job.assignments, {"run.cuda_graphs=true"}), ranks);
    const std::string said = " passes are CUDA graphs from here on";
    CHECK((graphs.error.find(said) != std::string::npos) == job.captures);
    CHECK(run.metric("loss", name + "-graphs") == run.metric("loss", name));
    CHECK(run.metric("eval_loss", name + "-graphs") == run.metric("eval_loss", name));
    CHECK(run.weights_sha256(run.checkpoint(6, name + "-graphs")) ==
          run.weights_sha256(run.checkpoint(6, name)));
  }
}

TEST_CASE("a compressed run on the CUDA device learns what it learns on the CPU, and is resumed") {
  const std::vector<std::string>& job = kCompressed;
  const std::vector<std::string> ranks = {"--ranks", "4"};
  const TrainingRun run;
  require_done(run.train(with({"run.dir=" + run.path("cpu")}, job), ranks));
  check_that_pools_were_enough(train_on_cuda(run, "cuda", job, ranks), 4);
  CHECK(difference(run.metric("loss", "cuda"), run.metric("loss", "cpu")) <= kCompressedLoss);
  train_on_cuda(
      run, "rest", with(job, {"checkpoint.resume_from=" + run.checkpoint(3, "cuda")}), ranks);
  CHECK(run.weights_sha256(run.checkpoint(6, "rest")) ==
        run.weights_sha256(run.checkpoint(6, "cuda")));
}

// Four replicas share what two of them owed.
TEST_CASE("residuals of a run on the CUDA device go on on other numbers of replicas") {
  const std::vector<std::string> job = {
      "batch.micro=1",
      "optimizer.lr=1e-3",
      "compress.policy=all",
      R"(compress.data_gradient={"codec": "top_k", "ratio": 0.05, "error_feedback": "immediate"})"};
  const TrainingRun run;
  train_on_cuda(run, "two", with(job, {"parallel.data=2"}), {"--ranks", "2"});
  const std::vector<std::string> on =
      with(job, {"parallel.data=4", "checkpoint.resume_from=" + run.checkpoint(3, "two")});
  train_on_cuda(run, "cuda", on, {"--ranks", "4"});
  require_done(run.train(with(on, {"run.dir=" + run.path("cpu")}), {"--ranks", "4"}));
  CHECK(difference(run.metric("loss", "cuda"), run.metric("loss", "cpu")) <= kCompressedLoss);
}

TEST_CASE("outer rounds on the CUDA device learn what they learn on the CPU, and are resumed") {
  const TrainingRun run;
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"", ""}, {"-eager", R"(, "eager": true)"}, {"-at-once", R"(, "delay": 0)"}};
  for (const auto& [name, more] : forms) {
    const std::vector<std::string> rounds = {
        "parallel.data=2",
        "parallel.group=1",
        "run.steps=12",
        "run.eval_every=5",  // in the middle of rounds
        "run.save_every=6",
        R"(outer={"method": "co2", "period": 4, "clip": 0.01)" + more + "}"};
    INFO(name);
    const std::string cpu = "cpu" + name;
    const std::string cuda = "cuda" + name;
    require_done(run.train(with(rounds, {"run.dir=" + run.path(cpu)}), {"--ranks", "2"}));
    train_on_cuda(run, cuda, with(rounds, {"network.transport=host"}), {"--ranks", "2"});
    CHECK(difference(run.metric("loss", cuda), run.metric("loss", cpu)) <= kLoss);
    CHECK(difference(run.metric("eval_loss", cuda), run.metric("eval_loss", cpu)) <= kLoss);
    const std::string rest = "rest" + name;
    train_on_cuda(
        run,
        rest,
        with(rounds,
             {"network.transport=host", "checkpoint.resume_from=" + run.checkpoint(6, cuda)}),
        {"--ranks", "2"});
    CHECK(run.weights_sha256(run.checkpoint(12, rest)) ==
          run.weights_sha256(run.checkpoint(12, cuda)));
  }
}

TEST_CASE("a run that the device has no memory for says what is held and what would fit",
          "[memory]") {
  const TrainingRun run;
  const std::vector<std::string> wide = {
      "device=cuda", "batch.global=512", "batch.micro=512", "model.sequence=64", "run.steps=1"};
  std::vector<std::string> command = run.arguments(wide, {});
  // The product workspace takes 32 MiB of it.
  command.insert(command.begin(), {"SL_EMULATED_DEVICE_MEMORY=200000000", cuda_binary()});
  const ProcessResult refused = run_process("/usr/bin/env", command);
  INFO(refused.error);
  if (refused.error.find("emulated") == std::string::npos) {
    testing::skip_test("a GPU has more memory than this test asks for");
    return;
  }
  CHECK(refused.exit_code == 4);
  CHECK_THAT(refused.error, Catch::Contains("out of device memory for this rank's pool of "));
  CHECK_THAT(refused.error, Catch::Contains("It is to hold:\n"));
  CHECK_THAT(refused.error, Catch::Contains("activations\n"));
  CHECK_THAT(refused.error, Catch::Contains("hint: with --set batch.micro="));
}

}  // namespace slackline
