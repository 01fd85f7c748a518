#include "core/locked_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"

namespace slackline {

namespace {

constexpr mode_t kFileMode = 0644;

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  throw FileError(
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(error)));
}

// Network file systems without a lock service, and some of parallel machines, answer so.
bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

void warn_or_fail(const std::string& path, int error) {
  if (!has_no_locks(error)) {
    fail(path, "lock", error);
  }
  log_warning(
      fmt::format("{}: its file system has no locks ({}); nothing keeps a second process "
                  "from doing the same at the same time",
                  path,
                  std::generic_category().message(error)));
}

}  // namespace

LockedFile LockedFile::open_unlocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kFileMode);
  if (descriptor < 0) {
    fail(path, "open", errno);
  }
  return {path, descriptor};
}

std::optional<LockedFile> LockedFile::open(const std::string& path) {
  LockedFile file = open_unlocked(path);
  while (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return std::nullopt;
    }
    if (errno != EINTR) {
      warn_or_fail(path, errno);
      break;
    }
  }
  return file;
}

LockedFile LockedFile::wait(const std::string& path) {
  LockedFile file = open_unlocked(path);
  while (::flock(file.descriptor(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      fail(path, "lock", errno);
    }
  }
  return file;
}

void LockedFile::replace_text(std::string_view text) {
  if (::ftruncate(descriptor_, 0) != 0) {
    fail(path_, "truncate", errno);
  }
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor_, text.data(), text.size());
    if (count < 0 && errno != EINTR) {
      fail(path_, "write", errno);
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

LockedFile::~LockedFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace slackline
