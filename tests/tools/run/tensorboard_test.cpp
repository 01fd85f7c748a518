#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tools/record/event_record.h"
#include "tools/record/tensorboard_writer.h"

namespace slackline {
namespace {

std::string hex(const std::string& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4U];
    text += kDigits[static_cast<unsigned char>(byte) & 0xfU];
  }
  return text;
}

}  // namespace

// Both golden records were made by TensorBoard's own writer:
//   RecordWriter(file).write(Event(wall_time=..., ...).SerializeToString())
TEST_CASE("the first record says which version of events follows, byte for byte") {
  CHECK(hex(file_version_record(1700000000.0)) ==
        "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
}

TEST_CASE("a scalar is an event with a summary, byte for byte") {
  CHECK(hex(scalar_record(
            {.wall_time = 1700000000.5, .step = 300, .tag = "train/loss", .value = 2.75F})) ==
        "2100000000000000017becf60900002040fc54d94110ac022a130a110a0a747261696e2f6c6f737315"
        "00003040c7658f0f");
}

TEST_CASE("a writer leaves the records in a file that TensorBoard looks for") {
  const TemporaryDirectory directory;
  TensorboardWriter writer(directory.path(), 1700000000);
  CHECK(writer.path().starts_with(directory.file("events.out.tfevents.1700000000.")));
  writer.scalar("train/loss", 1, 2.5);
  writer.scalar("train/lr", 1, 1e-3);
  writer.flush();
  const std::string content = read_file(writer.path());
  const std::string version = file_version_record(1700000000.0);
  CHECK(content.starts_with(version));
  // The frame of 16 bytes, the time (9), the step (2), two nested messages (4) and the value (5).
  CHECK(content.size() == version.size() + (36 + 2 + 10) + (36 + 2 + 8));
}

TEST_CASE("a second writer of the same second opens a file of its own") {
  const TemporaryDirectory directory;
  TensorboardWriter first(directory.path(), 1700000000);
  const std::string before = read_file(first.path());
  TensorboardWriter second(directory.path(), 1700000000);
  CHECK(second.path() == first.path() + ".1");
  CHECK(read_file(first.path()) == before);
}

TEST_CASE("an event file that cannot be made is a file error with its path") {
  CHECK_THROWS_AS(TensorboardWriter("/nowhere/at/all", 1), FileError);
  CHECK_THROWS_WITH(TensorboardWriter("/nowhere/at/all", 1),
                    Catch::StartsWith("/nowhere/at/all/events.out.tfevents.1.") &&
                        Catch::EndsWith("cannot create: No such file or directory"));
}

}  // namespace slackline
