#include "core/file_io.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

namespace {

using Catch::Contains;
namespace fs = std::filesystem;

std::string text_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t entries(const std::string& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), {}));
}

}  // namespace

TEST_CASE("a mapped file shows its bytes, moves, and may be empty") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("a"), "hello");
  write_file_atomically(directory.file("empty"), "");
  MappedFile file(directory.file("a"));
  REQUIRE(text_of(file) == "hello");
  MappedFile moved = std::move(file);
  REQUIRE(text_of(moved) == "hello");
  REQUIRE(moved.path() == directory.file("a"));
  moved = MappedFile(directory.file("empty"));
  REQUIRE(moved.bytes().empty());
}

TEST_CASE("a file that cannot be read is refused with its path and the reason") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_AS(MappedFile(directory.file("x")), FileError);
  REQUIRE_THROWS_WITH(
      MappedFile(directory.file("x")),
      Catch::Equals(directory.file("x") + ": cannot open: No such file or directory"));
  REQUIRE_THROWS_WITH(MappedFile(directory.path()), Contains("not a regular file"));
  REQUIRE(::mkfifo(directory.file("pipe").c_str(), 0600) == 0);  // that nobody writes to
  REQUIRE_THROWS_WITH(MappedFile(directory.file("pipe")), Contains("not a regular file"));
  REQUIRE_THROWS_WITH(read_file(directory.path()), Contains("cannot read: Is a directory"));
  REQUIRE_THROWS_AS(read_file(directory.file("x")), FileError);
  write_file_atomically(directory.file("long"), "123456");
  REQUIRE(read_file(directory.file("long"), 6) == "123456");
  REQUIRE_THROWS_WITH(read_file(directory.file("long"), 5), Contains("larger than 5 bytes"));
  REQUIRE(read_start(directory.file("long"), 3) == "123");
  REQUIRE(read_start(directory.file("long"), 9) == "123456");
}

TEST_CASE("an atomic write replaces the file and leaves nothing beside it") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("a"), "old");
  write_file_atomically(directory.file("a"), "new");
  REQUIRE(read_file(directory.file("a")) == "new");
  REQUIRE(entries(directory.path()) == 1);
}

TEST_CASE("a streamed file appears only when committed") {
  const TemporaryDirectory directory;
  const std::string large(700'000, 'x');
  {
    FileWriter writer(directory.file("a"));
    writer.write("one ");
    writer.write(large);
    REQUIRE_FALSE(fs::exists(directory.file("a")));
    writer.write(" two");
    REQUIRE(writer.bytes_written() == large.size() + 8);
    writer.commit();
  }
  REQUIRE(read_file(directory.file("a")) == "one " + large + " two");
  {
    FileWriter abandoned(directory.file("b"));
    abandoned.write("half");
  }
  REQUIRE(entries(directory.path()) == 1);
}

TEST_CASE("a second writer of a file is refused, and the first one's bytes stay") {
  const TemporaryDirectory directory;
  const std::string large(700'000, 'x');
  FileWriter writer(directory.file("a"));
  writer.write(large);
  REQUIRE_THROWS_WITH(FileWriter(directory.file("a")), Contains("a.partial: another process"));
  writer.write(large);
  writer.commit();
  REQUIRE(read_file(directory.file("a")) == large + large);
  std::ofstream(directory.file("a.partial")) << "what a killed process has left, which is longer";
  write_file_atomically(directory.file("a"), "new");
  REQUIRE(read_file(directory.file("a")) == "new");
  REQUIRE(entries(directory.path()) == 1);
}

TEST_CASE("a full disk keeps the old file, removes the partial one and says so") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("a"), "old");
  fs::create_symlink("/dev/full", directory.file("a.partial"));  // every write to it: disk full
  REQUIRE_THROWS_AS(write_file_atomically(directory.file("a"), "new"), FileError);
  fs::create_symlink("/dev/full", directory.file("a.partial"));
  REQUIRE_THROWS_WITH(
      write_file_atomically(directory.file("a"), "new"),
      Catch::Equals(directory.file("a") + ": cannot write: No space left on device"));
  REQUIRE(read_file(directory.file("a")) == "old");
  REQUIRE(entries(directory.path()) == 1);
}

TEST_CASE("a disk that fills up in the middle of a stream is reported") {
  const TemporaryDirectory directory;
  const std::string large(2'000'000, 'x');
  {
    const FileSizeLimit limit(1'000'000);
    FileWriter writer(directory.file("a"));
    REQUIRE_THROWS_WITH(writer.write(large), Contains("a: cannot write: File too large"));
  }
  REQUIRE(entries(directory.path()) == 0);
}

TEST_CASE("a directory that cannot be written is refused with path and reason") {
  const TemporaryDirectory directory;
  write_file_atomically(directory.file("file"), "x");
  REQUIRE_THROWS_AS(write_file_atomically(directory.file("none/a"), "x"), FileError);
  REQUIRE_THROWS_WITH(write_file_atomically(directory.file("none/a"), "x"),
                      Contains("none/a.partial: cannot create: No such file or directory"));
  REQUIRE_THROWS_WITH(make_directories(directory.file("file/sub")),
                      Contains("file/sub: cannot create directory: Not a directory"));
  REQUIRE_THROWS_WITH(write_file_atomically("/proc/a", "x"), Contains("/proc/a"));
}

TEST_CASE("a line file appends, survives reopening and truncates at a line") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("metrics.jsonl");
  {
    LineFile lines(path);
    lines.append("1");
    lines.append("2");
    REQUIRE(read_file(path) == "1\n2\n");  // flushed at once
  }
  std::ofstream(path, std::ios::app) << "3\n4\nhalf a li";  // a crash in the middle of a line
  LineFile lines(path);
  lines.truncate_before([](std::string_view line) { return line == "4"; });
  lines.append("5");
  REQUIRE(read_file(path) == "1\n2\n3\n5\n");
  std::ofstream(path, std::ios::app) << "half";
  lines.truncate_before([](std::string_view) { return false; });
  REQUIRE(read_file(path) == "1\n2\n3\n5\n");
  REQUIRE_THROWS_AS(lines.append("a\nb"), Error);
}

TEST_CASE("directories are made with parents, renamed, and removed without following links") {
  const TemporaryDirectory directory;
  make_directories(directory.file("a/b/c"));
  make_directories(directory.file("a/b/c"));
  write_file_atomically(directory.file("kept"), "x");
  fs::create_symlink(directory.file("kept"), directory.file("a/b/link"));
  rename_and_sync(directory.file("a/b"), directory.file("d"));
  REQUIRE(fs::is_directory(directory.file("d/c")));
  remove_tree(directory.file("d"));
  remove_tree(directory.file("d"));
  REQUIRE_FALSE(fs::exists(directory.file("d")));
  REQUIRE(read_file(directory.file("kept")) == "x");
  REQUIRE_THROWS_WITH(rename_and_sync(directory.file("x"), directory.file("y")),
                      Contains("x: cannot rename to"));
  REQUIRE_THROWS_WITH(exchange_and_sync(directory.file("x"), directory.file("kept")),
                      Contains("x: cannot change places with"));
  for (const char* path : {"", "/", ".", "..", "a/.."}) {
    REQUIRE_THROWS_AS(remove_tree(path), Error);
  }
}

TEST_CASE("two names change places") {
  const TemporaryDirectory directory;
  make_directories(directory.file("a"));
  write_file_atomically(directory.file("a/file"), "a");
  make_directories(directory.file("b"));
  write_file_atomically(directory.file("b/file"), "b");
  if (exchange_and_sync(directory.file("a"), directory.file("b"))) {
    REQUIRE(read_file(directory.file("a/file")) == "b");
    REQUIRE(read_file(directory.file("b/file")) == "a");
  } else {
    REQUIRE(read_file(directory.file("a/file")) == "a");
  }
}

}  // namespace slackline
