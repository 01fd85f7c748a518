#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/run_process.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

// `slackline train` under a real mpirun, ranks as processes, more of them than cores. Under each
// rank stands a shell that notes the rank's process id and exit code in files, so that tests can
// signal one rank and see how each ended.
class MpiJob {
 public:
  // Consecutive ranks that are started alike.
  struct Ranks {
    int count = 1;
    std::vector<std::string> arguments{};  // of slackline
    std::string directory{};               // to start in; empty: the test's own
  };

  // Starts mpirun. `notes` is a directory to make, for the files of the ranks.
  MpiJob(std::string notes, const std::vector<Ranks>& parts);

  // Waits for mpirun's end, then for that of all ranks.
  [[nodiscard]] ProcessResult wait();

  [[nodiscard]] int num_ranks() const { return num_ranks_; }

  void signal_launcher(int signal) const;
  void signal_rank(int rank, int signal) const;

  // From now on the rank's writes beyond these bytes of any file fail, as on a full disk.
  void limit_file_size(int rank, std::size_t bytes) const;

  [[nodiscard]] bool any_ended() const;

  // Whether all ranks but `except` ended with `code`. Open MPI kills what is left when the first
  // have ended, and nobody learns those ranks' codes; one at least is needed.
  [[nodiscard]] bool all_ended_with(int code, int except = -1) const;

  // Seconds from now until the last of the ranks has gone; gives up after `limit`.
  [[nodiscard]] double seconds_until_gone(double limit) const;

 private:
  // Returns the ids of a rank's process and of its shell's.
  [[nodiscard]] std::vector<int> processes(int rank) const;
  [[nodiscard]] std::vector<std::string> command(const std::vector<Ranks>& parts) const;

  std::string notes_;
  int num_ranks_ = 0;
  std::unique_ptr<RunningProcess> launcher_;
};

// A whole run of `ranks` ranks of one command line.
[[nodiscard]] ProcessResult run_mpi(const TrainingRun& run,
                                    int ranks,
                                    const std::vector<std::string>& assignments,
                                    const std::vector<std::string>& options = {});

// A run that has done at least `steps` steps and goes on.
[[nodiscard]] std::unique_ptr<MpiJob> start_mpi(const TrainingRun& run,
                                                const std::vector<MpiJob::Ranks>& parts,
                                                std::size_t steps);

// Waits until `condition` holds; fails the test when it does not within a minute.
void wait_until(const std::function<bool()>& condition);

// How many lines of a program's messages hold `text`.
[[nodiscard]] int count_lines(const std::string& messages, const std::string& text);

}  // namespace slackline
