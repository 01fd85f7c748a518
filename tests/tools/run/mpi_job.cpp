#include "tests/tools/run/mpi_job.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{5};
constexpr double kLongestWait = 60.0;  // seconds

// What stands under each rank. The traps make the shell outlive signals to the whole group, which
// is how mpirun sends them, until the rank itself has ended; the rank does not inherit them.
constexpr const char* kShell = R"(trap '' XFSZ
trap : TERM INT USR1
rank=$1/$OMPI_COMM_WORLD_RANK; shift
"$@" &
echo $! $$ > $rank.started
mv $rank.started $rank.ids
while kill -0 $! 2> $rank.gone; do wait $!; code=$?; done
echo $code > $rank.code
exit $code)";

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<int> numbers_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<int> numbers;
  for (int number = 0; file >> number;) {
    numbers.push_back(number);
  }
  return numbers;
}

// Dead processes whose parent has not asked for their end are gone, too.
bool is_alive(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

}  // namespace

void wait_until(const std::function<bool()>& condition) {
  const Clock::time_point begin = Clock::now();
  while (!condition()) {
    if (seconds_since(begin) > kLongestWait) {
      throw Error("what the test waits for does not happen");
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

MpiJob::MpiJob(std::string notes, const std::vector<Ranks>& parts) : notes_(std::move(notes)) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
    ::setenv(name, "1", 1);
  }
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::filesystem::remove_all(notes_);
  std::filesystem::create_directories(notes_);
  for (const Ranks& part : parts) {
    num_ranks_ += part.count;
  }
  launcher_ = std::make_unique<RunningProcess>(SL_MPIEXEC, command(parts));
}

std::vector<std::string> MpiJob::command(const std::vector<Ranks>& parts) const {
  std::vector<std::string> all = {"--oversubscribe"};
  for (const Ranks& part : parts) {
    if (&part != parts.data()) {
      all.emplace_back(":");
    }
    all.insert(all.end(), {"-np", std::to_string(part.count)});
    if (!part.directory.empty()) {
      all.insert(all.end(), {"-wdir", part.directory});
    }
    all.insert(all.end(), {"/bin/sh", "-c", kShell, "rank", notes_, SL_BINARY});
    all.insert(all.end(), part.arguments.begin(), part.arguments.end());
  }
  return all;
}

ProcessResult MpiJob::wait() {
  ProcessResult result = launcher_->wait();
  static_cast<void>(seconds_until_gone(kLongestWait));
  return result;
}

std::vector<int> MpiJob::processes(int rank) const {
  return numbers_in(fmt::format("{}/{}.ids", notes_, rank));
}

bool MpiJob::any_ended() const {
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (std::filesystem::exists(fmt::format("{}/{}.code", notes_, rank))) {
      return true;
    }
  }
  return false;
}

bool MpiJob::all_ended_with(int code, int except) const {
  int known = 0;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const std::vector<int> found = numbers_in(fmt::format("{}/{}.code", notes_, rank));
    if (rank == except || found.empty()) {
      continue;
    }
    if (found[0] != code) {
      return false;
    }
    ++known;
  }
  return known > 0;
}

void MpiJob::signal_launcher(int signal) const {
  ::kill(launcher_->id(), signal);
}

void MpiJob::signal_rank(int rank, int signal) const {
  REQUIRE(::kill(processes(rank).at(0), signal) == 0);
}

void MpiJob::limit_file_size(int rank, std::size_t bytes) const {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  REQUIRE(::prlimit(processes(rank).at(0), RLIMIT_FSIZE, &limit, nullptr) == 0);
}

double MpiJob::seconds_until_gone(double limit) const {
  const Clock::time_point begin = Clock::now();
  for (int rank = 0; rank < num_ranks_; ++rank) {
    for (const int process : processes(rank)) {
      while (is_alive(process) && seconds_since(begin) < limit) {
        std::this_thread::sleep_for(kLookAgain);
      }
    }
  }
  return seconds_since(begin);
}

ProcessResult run_mpi(const TrainingRun& run,
                      int ranks,
                      const std::vector<std::string>& assignments,
                      const std::vector<std::string>& options) {
  MpiJob job(run.path("notes"),
             {{.count = ranks, .arguments = run.arguments(assignments, options)}});
  return job.wait();
}

std::unique_ptr<MpiJob> start_mpi(const TrainingRun& run,
                                  const std::vector<MpiJob::Ranks>& parts,
                                  std::size_t steps) {
  auto job = std::make_unique<MpiJob>(run.path("notes"), parts);
  wait_until([&] {
    if (job->any_ended()) {
      throw Error("a run that should go on has ended: " + job->wait().error);
    }
    return std::filesystem::exists(run.run_dir() + "/metrics.jsonl") &&
           run.metric("grad_norm").size() >= steps;
  });
  return job;
}

int count_lines(const std::string& messages, const std::string& text) {
  std::istringstream lines(messages);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    count += line.find(text) != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace slackline
