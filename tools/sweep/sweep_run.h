#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "tools/sweep/sweep_file.h"

namespace slackline {

// One run of a sweep: `slackline train` as a process of its own, in point.config.run.dir. Beside
// the files of every run the directory holds
//   config.json             what train was given
//   stdout.txt, stderr.txt  what all attempts printed
//   outcome.json            how it ended; there once it has, absent before
// so that a sweep needs no memory of its own: whatever was killed when, these say where to go on.

// How a run ended.
struct RunOutcome {
  int exit_code = 0;      // 128 + signal when a signal ended it
  std::string message{};  // the last error it printed

  // Done, or stopped by a loss that is not finite, which is what these settings lead to. Other
  // failures may have causes outside the run, so the next start of the sweep tries again.
  [[nodiscard]] bool stands() const {
    return exit_code == static_cast<int>(ExitCode::done) ||
           exit_code == static_cast<int>(ExitCode::non_finite);
  }
};

// Nothing when the run has not ended yet.
[[nodiscard]] std::optional<RunOutcome> read_outcome(const SweepPoint& point);

// Throws FileError where the directory holds a run of another config, naming the first key that
// differs, or a run that no sweep began.
void require_own_run(const SweepPoint& point);

// The last step that the run has saved, from which it will go on, else that of the checkpoint with
// which it begins; 0 where it begins anew.
[[nodiscard]] std::int64_t saved_step(const SweepPoint& point);

// Whether a run is trained though an outcome that stands is recorded, as of one whose record does
// not agree with it.
enum class Again { no, yes };

// Runs the point to its end, from its newest checkpoint if it has one, and records the outcome. A
// process that an earlier sweep left behind is waited for first, and where another command has
// trained the point meanwhile its outcome is the result. Calls `look` some times a second. Throws
// FileError where the directory has become another config's, or the program has been replaced and a
// launcher cannot find it.
// After a stop signal the run is asked to save and end, and unless it has come to its last step all
// the same, nothing is recorded or returned.
[[nodiscard]] std::optional<RunOutcome> run_point(const SweepPoint& point,
                                                  const std::vector<std::string>& launch,
                                                  Again again,
                                                  const std::function<void()>& look);

// The last error among what a run printed, whole but without its time; else the last line. Exposed
// for tests.
[[nodiscard]] std::string last_message(std::string_view printed);

}  // namespace slackline
