#include "core/locked_file.h"

#include <cerrno>
#include <fcntl.h>
#include <span>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace slackline {

namespace {

// Network file systems without a lock service, and some of parallel machines, answer so.
bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

void warn_or_fail(const std::string& path, int error) {
  if (!has_no_locks(error)) {
    fail_at(path, "lock", error);
  }
  log_warning(
      fmt::format("{}: its file system has no locks ({}); nothing keeps a second process "
                  "from doing the same at the same time",
                  path,
                  std::generic_category().message(error)));
}

}  // namespace

LockedFile::LockedFile(std::string path)
    : path_(std::move(path)), file_(path_, O_WRONLY | O_CREAT | O_APPEND, "open") {}

std::optional<LockedFile> LockedFile::open(const std::string& path) {
  LockedFile file(path);
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
  LockedFile file(path);
  while (::flock(file.descriptor(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      fail_at(path, "lock", errno);
    }
  }
  return file;
}

void LockedFile::replace_text(std::string_view text) {
  if (::ftruncate(descriptor(), 0) != 0) {
    fail_at(path_, "truncate", errno);
  }
  file_.write(path_, std::as_bytes(std::span(text)));
}

}  // namespace slackline
