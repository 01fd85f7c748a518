// One run, one writer: a second process that is to write a run's directory is refused while the
// first is at work there, and is taken when it has ended, however it ended.

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/denied_locks.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;

namespace {

const std::vector<std::string> kEndless = {
    "run.steps=1000000", "run.eval_every=0", "run.save_every=2"};

void wait_for_checkpoint(const TrainingRun& run) {
  wait_until([&] { return std::filesystem::exists(run.checkpoint(2)); });
}

std::string own_host() {
  std::array<char, 256> host{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  return host.data();
}

// Code 3, with one message that names the process at work.
void require_refused(const ProcessResult& result, const std::string& holder) {
  INFO(result.error);
  REQUIRE(result.exit_code == 3);
  REQUIRE_THAT(result.error, Contains("run.lock: another process writes this run"));
  REQUIRE_THAT(result.error, Contains(holder));
  REQUIRE(count_lines(result.error, " error ") == 1);
}

// The steps of all step lines are 1, 2, 3, ...
void require_one_record(const TrainingRun& run) {
  const std::vector<double> steps = run.metric("step");
  REQUIRE_FALSE(steps.empty());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    REQUIRE(steps[i] == static_cast<double>(i + 1));
  }
}

}  // namespace

TEST_CASE("a second process in a live run directory is refused with 3 until the first is gone") {
  const TrainingRun run;
  RunningProcess first(SL_BINARY, run.arguments(kEndless, {}));
  wait_for_checkpoint(run);
  const std::string holder = fmt::format("host {}, process {}", own_host(), first.id());
  require_refused(run.train({"run.steps=1000000", "run.eval_every=0"}, {"--resume"}), holder);
  require_refused(run.train(), holder);
  require_refused(run.train({"device=rehearsal"}), holder);
  require_refused(run.train({"run.steps=1000000", "run.eval_every=0", "parallel.data=2"},
                            {"--resume", "--ranks", "2"}),
                  holder);
  require_refused(run_mpi(run, 2, {"run.eval_every=0", "parallel.data=2"}, {"--resume"}), holder);
  REQUIRE(::kill(first.id(), SIGKILL) == 0);
  REQUIRE(first.wait().exit_code == 128 + SIGKILL);
  const auto done = static_cast<int>(run.metric("step").size());
  require_done(
      run.train({"run.eval_every=0", fmt::format("run.steps={}", done + 2)}, {"--resume"}));
  require_one_record(run);
}

TEST_CASE("a rehearsal holds its directory, too") {
  const TrainingRun run;
  const RunningProcess first(SL_BINARY,
                             run.arguments({"device=rehearsal", "run.steps=1000000"}, {}));
  wait_until([&] { return std::filesystem::exists(run.run_dir() + "/metrics.jsonl"); });
  require_refused(run.train({"device=rehearsal"}), fmt::format("process {}", first.id()));
}

TEST_CASE("where a file system has no locks a run warns and goes on") {
  const TrainingRun run;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool denied = deny_locks(ENOLCK);
    const ProcessResult result = run.train({"run.eval_every=0"});
    const bool warned = count_lines(result.error, "run.lock: its file system has no locks") == 1;
    ::_exit(denied && warned && result.exit_code == 0 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  require_one_record(run);
}

}  // namespace slackline
