#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/locked_file.h"

namespace slackline {

// The right to write a run's directory, which one process has at a time: DIR/run.lock, locked by
// the system, which unlocks it when the process ends, however it ends. The file stays, and holds
// host and process of whoever took it last. Where the file system has no locks, a warning says so.
// Move-only.
class RunLock {
 public:
  // Creates the file when it is not there. Throws FileError that names host and process where
  // another process has the lock. REQUIRES: the directory is there.
  [[nodiscard]] static RunLock take(const std::string& run_dir);

  // The same, but touches nothing and returns nothing where there is no such file.
  [[nodiscard]] static std::optional<RunLock> take_existing(const std::string& run_dir);

 private:
  explicit RunLock(LockedFile file) : file_(std::move(file)) {}

  LockedFile file_;
};

}  // namespace slackline
