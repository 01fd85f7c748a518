#include "tools/record/run_lock.h"

#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "core/host_name.h"

namespace slackline {

namespace {

std::string path_of(const std::string& run_dir) {
  return fmt::format("{}/run.lock", run_dir);
}

std::string own_name() {
  return fmt::format("host {}, process {}", host_name(), ::getpid());
}

// The first line of the lock's file; empty where its holder has not written it yet.
std::string holder_of(const std::string& path) {
  const std::string text = read_file(path);
  return text.substr(0, text.find('\n'));
}

}  // namespace

LockedFile lock_run(const std::string& run_dir) {
  const std::string path = path_of(run_dir);
  std::optional<LockedFile> file = LockedFile::open(path);
  if (!file) {
    throw FileError(
        fmt::format("{}: another process writes this run; wait for its end, or choose another "
                    "run.dir; it is {}",
                    path,
                    holder_of(path)));
  }
  file->replace_text(own_name() + "\n");
  return std::move(*file);
}

std::optional<LockedFile> lock_existing_run(const std::string& run_dir) {
  return path_exists(path_of(run_dir)) ? std::optional(lock_run(run_dir)) : std::nullopt;
}

}  // namespace slackline
