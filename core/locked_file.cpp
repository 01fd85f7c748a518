#include "core/locked_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace slackline {

namespace {

constexpr mode_t kFileMode = 0644;

[[noreturn]] void fail(const std::string& path, const char* action, int error) {
  throw FileError(
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(error)));
}

}  // namespace

LockedFile LockedFile::open_unlocked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kFileMode);
  if (descriptor < 0) {
    fail(path, "open", errno);
  }
  return LockedFile(descriptor);
}

std::optional<LockedFile> LockedFile::open(const std::string& path) {
  LockedFile file = open_unlocked(path);
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) {
    return file;
  }
  if (errno != EWOULDBLOCK) {
    fail(path, "lock", errno);
  }
  return std::nullopt;
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

LockedFile::~LockedFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

LockedFile& LockedFile::operator=(LockedFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace slackline
