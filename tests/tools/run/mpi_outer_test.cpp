// Under mpirun: workers that train apart stop together, and end where one of them dies.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

namespace {

using testing::require_done;

std::vector<std::string> endless(const std::vector<std::string>& more) {
  return with({R"(outer={"method": "co2", "period": 4})",
               "parallel.group=1",
               "parallel.data=2",
               "batch.micro=2",
               "optimizer.lr=1e-3",
               "run.steps=100000",
               "run.eval_every=0"},
              more);
}

}  // namespace

TEST_CASE("a signal to one worker stops all at the end of the round") {
  const TrainingRun run;
  // It may come in an evaluation, which all finish.
  const std::vector<std::string> settings = endless({"run.save_every=0", "run.eval_every=1"});
  std::unique_ptr<MpiJob> job =
      start_mpi(run, {{.count = 2, .arguments = run.arguments(settings, {})}}, 3);
  job->signal_rank(1, SIGUSR1);
  const ProcessResult result = job->wait();
  INFO(result.error);
  REQUIRE(result.exit_code == 6);
  REQUIRE(job->all_ended_with(6));
  const std::size_t steps = run.metric("loss").size();
  CHECK(steps % 4 == 0);
  CHECK(std::filesystem::exists(run.checkpoint(static_cast<int>(steps))));
}

// Both workers stand still near the begin of their round, the first for long enough that its round
// leaves patience for a second worker whose steps take more than twice as long as its own.
TEST_CASE("a worker that is late is waited for beyond the timeout") {
  constexpr std::size_t kSteps = 400;
  const TrainingRun run;
  const std::vector<std::string> settings = endless({R"(outer={"method": "diloco", "period": 400})",
                                                     "model.layers=4",
                                                     "model.hidden=128",
                                                     "network.timeout_seconds=2",
                                                     "run.save_every=0",
                                                     "run.steps=" + std::to_string(kSteps)});
  std::unique_ptr<MpiJob> job =
      start_mpi(run, {{.count = 2, .arguments = run.arguments(settings, {})}}, 3);
  job->signal_rank(1, SIGSTOP);
  job->signal_rank(0, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  job->signal_rank(0, SIGCONT);
  // The last line is written behind the sum that waits for the other worker.
  wait_until([&] { return run.metric("loss").size() + 1 >= kSteps; });
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  job->signal_rank(1, SIGCONT);
  require_done(job->wait());
  CHECK(run.metric("loss").size() == kSteps);
}

TEST_CASE("a killed worker ends the others soon, and the run goes on") {
  const TrainingRun run;
  std::vector<std::string> settings = endless({"run.save_every=3"});
  std::unique_ptr<MpiJob> job =
      start_mpi(run, {{.count = 2, .arguments = run.arguments(settings, {})}}, 7);
  job->signal_rank(1, SIGKILL);
  constexpr double kEndSeconds = 5.0;
  CHECK(job->seconds_until_gone(kEndSeconds) < kEndSeconds);
  static_cast<void>(job->wait());
  const std::size_t steps = run.metric("loss").size();
  settings.push_back("run.steps=" + std::to_string(steps + 3));
  require_done(run_mpi(run, 2, settings, {"--resume"}));
  CHECK(run.metric("loss").size() == steps + 3);
}

}  // namespace slackline
