#pragma once

#include <optional>
#include <string>

#include "core/locked_file.h"

namespace slackline {

// Takes the right to write a run's directory, which one process has at a time: DIR/run.lock, locked
// by the system, which unlocks it when the process ends, however it ends. The file stays, and holds
// host and process of whoever took it last; it is created when it is not there. Where the file
// system has no locks, a warning says so. Throws FileError that names host and process where
// another process has the lock. REQUIRES: the directory is there.
[[nodiscard]] LockedFile lock_run(const std::string& run_dir);

// Locks it likewise, but touches nothing and returns nothing where there is no such file.
[[nodiscard]] std::optional<LockedFile> lock_existing_run(const std::string& run_dir);

}  // namespace slackline
