#include "core/locked_file.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/denied_locks.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

TEST_CASE("a locked file is nobody else's until its last descriptor is closed") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("lock");
  std::optional<LockedFile> first = LockedFile::open(path);
  REQUIRE(first.has_value());
  REQUIRE_FALSE(LockedFile::open(path).has_value());

  LockedFile moved = std::move(*first);
  first.reset();
  REQUIRE_FALSE(LockedFile::open(path).has_value());

  const int inherited = ::dup(moved.descriptor());  // as a process that was given it has
  { const LockedFile closed = std::move(moved); }
  REQUIRE_FALSE(LockedFile::open(path).has_value());
  ::close(inherited);
  REQUIRE(LockedFile::open(path).has_value());
}

TEST_CASE("who waits for a locked file gets it when it is given back") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("lock");
  std::optional<LockedFile> first = LockedFile::open(path);
  std::atomic<bool> begins = false;
  std::atomic<bool> is_back = false;
  bool was_back = false;
  std::thread waiting([&] {
    begins = true;
    begins.notify_all();
    const LockedFile own = LockedFile::wait(path);
    was_back = is_back;
  });
  begins.wait(false);
  // Long enough for a call that does not wait to be over.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  is_back = true;
  first.reset();
  waiting.join();
  REQUIRE(was_back);
  REQUIRE(LockedFile::open(path).has_value());
}

TEST_CASE("the text of a locked file is replaced as a whole") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("lock");
  write_file_atomically(path, "a longer text that was there before\n");
  std::optional<LockedFile> file = LockedFile::open(path);
  file->replace_text("one\n");
  REQUIRE(read_file(path) == "one\n");
  file->replace_text("second\n");
  REQUIRE(read_file(path) == "second\n");
}

TEST_CASE("where a file system has no locks a locked file is everybody's") {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("lock");
    const pid_t child = ::fork();
    if (child == 0) {
      const bool denied = deny_locks(error);
      const bool both = LockedFile::open(path).has_value() && LockedFile::open(path).has_value();
      ::_exit(denied && both ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
  }
}

TEST_CASE("a locked file is appended to and not inherited by programs") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("log");
  write_file_atomically(path, "old ");
  const std::optional<LockedFile> file = LockedFile::open(path);
  REQUIRE(::write(file->descriptor(), "new", 3) == 3);
  REQUIRE(read_file(path) == "old new");
  REQUIRE((::fcntl(file->descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a locked file that cannot be opened is a file error with its path") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("none/lock");
  REQUIRE_THROWS_WITH(LockedFile::open(path), Catch::StartsWith(path + ": cannot open: "));
  REQUIRE_THROWS_AS(LockedFile::open(path), FileError);
}

}  // namespace slackline
