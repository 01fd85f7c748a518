#pragma once

#include <string>
#include <vector>

#include "tests/support/run_process.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

// A small corpus and config in a directory of its own, and the binary to run on them. The model
// trains in about a tenth of a second, with everything on: two micro-batches, dropout, evaluation.
class TrainingRun {
 public:
  TrainingRun();

  // slackline train with this config; assignments as for --set, other options (--resume) as given.
  ProcessResult train(const std::vector<std::string>& assignments = {},
                      const std::vector<std::string>& options = {}) const;

  // The same through a shell, for limits and signals: `before` runs first, as in
  // "ulimit -f 10;", and `after` follows the command, as in "& sleep 1; kill %1".
  ProcessResult train_in_shell(const std::string& before,
                               const std::vector<std::string>& assignments,
                               const std::string& after = "") const;

  [[nodiscard]] std::string path(const std::string& name) const { return directory_.file(name); }

  [[nodiscard]] std::string run_dir() const { return path("run"); }

  [[nodiscard]] std::string checkpoint(int step, const std::string& run = "run") const;

  // SHA-256 of the logical weights of a checkpoint, as `inspect --sha256` prints it.
  [[nodiscard]] std::string weights_sha256(const std::string& checkpoint) const;
  // Numbers of one field in the lines of metrics.jsonl that have it, in order.
  [[nodiscard]] std::vector<double> metric(const std::string& field,
                                           const std::string& run = "run") const;

  // The command line of train() after the binary.
  [[nodiscard]] std::vector<std::string> arguments(const std::vector<std::string>& assignments,
                                                   const std::vector<std::string>& options) const;

 private:
  TemporaryDirectory directory_;
};

// Trains with so many ranks, which are threads of one process, and requires that the run ends well.
void require_trained(const TrainingRun& run,
                     int ranks,
                     const std::vector<std::string>& assignments,
                     const std::vector<std::string>& options = {});

// One list of assignments or options behind the other.
[[nodiscard]] std::vector<std::string> with(std::vector<std::string> first,
                                            const std::vector<std::string>& second);

}  // namespace slackline
