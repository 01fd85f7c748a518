#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

// The directory that holds a run's checkpoints. What is called step-00000100 is complete; what is
// called .step-00000100.partial is being written or removed, or is debris of a crash.

struct StepDirectory {
  std::int64_t step = 0;
  std::string path;
};

[[nodiscard]] std::string checkpoint_path(const std::string& checkpoints, std::int64_t step);

// Where the checkpoint that will be called `path` is written first: beside it.
[[nodiscard]] std::string partial_path(const std::string& path);

// Complete checkpoints in ascending order of steps; none when the directory is not there. One
// without a manifest (a copy that was cut short) does not count, with a warning.
[[nodiscard]] std::vector<StepDirectory> list_checkpoints(const std::string& checkpoints);

// Throws FileError where a step behind `after`, up to `last`, has a directory without a manifest:
// none could be saved there.
void refuse_incomplete_checkpoints(const std::string& checkpoints,
                                   std::int64_t after,
                                   std::int64_t last);

// Path of the newest complete checkpoint.
[[nodiscard]] std::optional<std::string> latest_checkpoint(const std::string& checkpoints);

// Removes a directory; that it cannot be removed is logged.
void try_to_remove(const std::string& path);

// Removes partial checkpoints, likewise. REQUIRES: nobody is writing one.
void remove_partial_checkpoints(const std::string& checkpoints);

// Removes all but the newest `keep`; the one of `step` stays in any case. A directory loses its
// complete name first, so that a crash in between leaves no half of a checkpoint under it. What
// cannot be removed is logged: the new checkpoint is safe, and an old one too many is no failure.
void remove_old_checkpoints(const std::string& checkpoints, std::size_t keep, std::int64_t step);

}  // namespace slackline
