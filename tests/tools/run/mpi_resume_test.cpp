// Under mpirun: runs go on from another layout's checkpoint, and from where a signal to the
// launcher or to any one rank stopped them.

#include <cmath>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

namespace {

using testing::require_done;

const std::vector<std::string> kCube = {"parallel.tensor=2",
                                        "parallel.pipeline=2",
                                        "parallel.data=2",
                                        "parallel.sequence_parallel=true",
                                        "parallel.data_strategy=zero1"};

std::vector<std::string> small(const std::vector<std::string>& parallel) {
  return with({"model.layers=4", "batch.micro=1", "optimizer.lr=1e-3"}, parallel);
}

// Long enough for a signal to come before its end.
constexpr int kSignalledSteps = 200;

std::vector<std::string> long_run(const std::vector<std::string>& parallel) {
  return small(
      with({"run.steps=" + std::to_string(kSignalledSteps), "run.eval_every=0", "run.save_every=0"},
           parallel));
}

// The loss of all steps in a run that nothing stopped, on one rank.
std::vector<double> uninterrupted_loss(const TrainingRun& run) {
  require_done(run.train(with(long_run({}), {"run.dir=" + run.path("one")})));
  return run.metric("loss", "one");
}

// A stopped run ended on every rank with 6 and left a checkpoint of its last step; gives that.
int require_stopped(MpiJob& job, const TrainingRun& run) {
  const ProcessResult result = job.wait();
  INFO(result.error);
  REQUIRE(result.exit_code == 6);
  REQUIRE(job.all_ended_with(6));
  REQUIRE(count_lines(result.error, "stopped by a signal") == 1);
  const auto steps = static_cast<int>(run.metric("loss").size());
  REQUIRE(steps < kSignalledSteps);
  REQUIRE(std::filesystem::exists(run.checkpoint(steps)));
  return steps;
}

}  // namespace

TEST_CASE("a checkpoint of 2 x 2 x 2 ranks goes on under mpirun on any other layout") {
  const TrainingRun run;
  require_done(run_mpi(run, 8, small(kCube)));
  const std::vector<double> whole = run.metric("loss");
  REQUIRE(whole.size() == 6);

  struct Other {
    std::string name{};
    int ranks = 1;
    std::vector<std::string> parallel{};
  };

  const std::vector<Other> others = {
      {"one", 1, {}},
      {"pipeline", 4, {"parallel.pipeline=4"}},
      {"data", 2, {"parallel.data=2"}},
      {"same", 8, kCube},
  };
  for (const Other& other : others) {
    INFO(other.name);
    require_done(run_mpi(run,
                         other.ranks,
                         small(with({"run.dir=" + run.path(other.name),
                                     "checkpoint.resume_from=" + run.checkpoint(3)},
                                    other.parallel))));
    const std::vector<double> loss = run.metric("loss", other.name);
    REQUIRE(loss.size() == 3);
    for (std::size_t i = 0; i < loss.size(); ++i) {
      const double bound = other.name == "same" ? 0.0 : 1e-6;
      CHECK(std::abs(loss[i] - whole[i + 3]) <= bound * whole[i + 3]);
    }
  }
  REQUIRE(run.weights_sha256(run.checkpoint(6, "one")) ==
          run.weights_sha256(run.checkpoint(6, "pipeline")));
  REQUIRE(run.weights_sha256(run.checkpoint(6, "same")) == run.weights_sha256(run.checkpoint(6)));
}

TEST_CASE("a signal to the launcher or to one rank saves on all and ends with 6; the run goes on") {
  const TrainingRun run;
  const std::vector<double> expected = uninterrupted_loss(run);
  const std::vector<std::string> pipeline =
      long_run({"parallel.pipeline=4", "parallel.schedule=zb_h1"});
  const std::vector<MpiJob::Ranks> first = {{.count = 4, .arguments = run.arguments(pipeline, {})}};
  const std::vector<MpiJob::Ranks> again = {
      {.count = 4, .arguments = run.arguments(pipeline, {"--resume"})}};

  std::unique_ptr<MpiJob> job = start_mpi(run, first, 2);
  job->signal_launcher(SIGUSR1);
  int steps = require_stopped(*job, run);

  job = start_mpi(run, again, static_cast<std::size_t>(steps) + 2);
  job->signal_rank(3, SIGUSR1);
  steps = require_stopped(*job, run);

  job = start_mpi(run, again, static_cast<std::size_t>(steps) + 2);
  job->signal_rank(2, SIGTERM);
  steps = require_stopped(*job, run);

  require_done(run_mpi(run, 2, long_run({"parallel.pipeline=2"}), {"--resume"}));
  REQUIRE(run.metric("loss") == expected);
}

TEST_CASE("a signal to one rank of 2 x 2 x 2 stops all of them at one step") {
  const TrainingRun run;
  std::unique_ptr<MpiJob> job =
      start_mpi(run, {{.count = 8, .arguments = run.arguments(long_run(kCube), {})}}, 2);
  job->signal_rank(5, SIGUSR1);
  const int steps = require_stopped(*job, run);
  require_done(run_mpi(
      run,
      1,
      small({"run.eval_every=0", "run.save_every=0", "run.steps=" + std::to_string(steps + 2)}),
      {"--resume"}));
}

TEST_CASE("after SIGTERM waits may last for run.stop_seconds") {
  const TrainingRun run;
  write_file_atomically(run.path("slow.json"), R"({
      "nodes": [{"count": 1, "devices": 2, "memory_bytes": 1e9}],
      "links": [{"scope": "node", "latency_seconds": 0.4, "bytes_per_second": 1e9, "duplex": true,
                 "shared_by": "pair", "source": "assumed"}]})");
  const auto start = [&](const std::string& seconds) {
    const std::vector<std::string> slow = long_run({"parallel.pipeline=2",
                                                    "network.links=" + run.path("slow.json"),
                                                    "run.stop_seconds=" + seconds});
    return start_mpi(run, {{.count = 2, .arguments = run.arguments(slow, {})}}, 1);
  };
  std::unique_ptr<MpiJob> job;
  for (const bool asked_before : {false, true}) {
    job = start("0.1");
    if (asked_before) {
      job->signal_rank(1, SIGUSR1);
    }
    job->signal_rank(1, SIGTERM);
    const ProcessResult given_up = job->wait();
    INFO(given_up.error);
    REQUIRE(given_up.exit_code != 6);
    REQUIRE(count_lines(given_up.error, "not finished when this process was told to end") > 0);
    for (const auto& entry : std::filesystem::directory_iterator(run.run_dir() + "/checkpoints")) {
      REQUIRE(!entry.path().filename().string().starts_with("step-"));
    }
    std::filesystem::remove_all(run.run_dir());
  }

  job = start("60");
  job->signal_rank(1, SIGTERM);
  require_stopped(*job, run);
}

}  // namespace slackline
