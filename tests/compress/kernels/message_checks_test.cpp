#include "compress/kernels/message_checks.h"

#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "tests/core/kernels/index_tensor.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

[[noreturn]] void raise(const DeviceFault& fault) {
  std::string text;
  for (const std::uint32_t word : fault.words) {
    text += std::to_string(word) + " ";
  }
  throw CommError(text);
}

// What is raised, "" for nothing.
template <typename Check>
std::string raised(StreamView stream, const Check& check) {
  try {
    check();
    stream.synchronize();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

constexpr MessageWords kWords = {1, 0x80000002, 0xffffffff, 0};

// A message of 16 bytes at some offset of a tensor.
struct Message {
  explicit Message(std::int64_t offset)
      : memory(DType::u8, {16 + offset}), view(memory.view().rows(offset, offset + 16)) {}

  GuardedTensor memory;
  Tensor view;
};

}  // namespace

TEST_CASE("a message begins with the words that were written, at any address") {
  Stream stream(test_stream(1));
  for (const std::int64_t offset : {0, 1, 2, 7}) {
    const Message message(offset);
    write_words(stream, message.view, kWords);
    CHECK(raised(stream, [&] { check_words(stream, message.view, kWords, raise); }).empty());
    MessageWords found;
    std::memcpy(found.data(), message.view.raw(), sizeof(found));
    CHECK(found == kWords);
    CHECK(message.memory.sentinels_intact());
  }
}

TEST_CASE("other words are told with those that are due") {
  Stream stream(test_stream(1));
  const Message message(3);
  write_words(stream, message.view, kWords);
  const auto check = [&] { check_words(stream, message.view, {1, 2, 3, 4}, raise); };
  CHECK(raised(stream, check) == "1 2147483650 4294967295 0 1 2 3 4 ");
  CHECK(raised(stream, [] {}).empty());  // once
  CHECK(raised(stream, check) == "1 2147483650 4294967295 0 1 2 3 4 ");
}

TEST_CASE("the first index that repeats, falls or is out of range is told") {
  Stream stream(test_stream(3));
  std::vector<std::uint32_t> ascending(40000);
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    ascending[i] = static_cast<std::uint32_t>(2 * i);
  }
  const auto disorder = [&](const std::vector<std::uint32_t>& values, std::size_t n) {
    const IndexTensor indices(values);
    return raised(stream, [&] { check_ascending(stream, indices.view, n, 7, raise); });
  };
  CHECK(disorder(ascending, 79999).empty());
  CHECK(disorder(ascending, 79998) == "39999 79998 79996 40000 79998 7 0 0 ");
  CHECK(disorder(ascending, 10) == "5 10 8 40000 10 7 0 0 ");
  CHECK(disorder(ascending, 0) == "0 0 0 40000 0 7 0 0 ");
  CHECK(disorder({}, 10).empty());
  for (const std::uint32_t at : {1U, 255U, 256U, 8191U, 8192U, 39999U}) {
    std::vector<std::uint32_t> repeated = ascending;
    repeated[at] = repeated[at - 1];
    const std::uint32_t before = 2 * at - 2;
    CHECK(disorder(repeated, 80000) ==
          fmt::format("{} {} {} 40000 80000 7 0 0 ", at, before, before));
    std::vector<std::uint32_t> falling = ascending;
    falling[at] = 0;
    falling.back() = 0;
    CHECK(disorder(falling, 80000) == fmt::format("{} 0 {} 40000 80000 7 0 0 ", at, before));
  }
}

TEST_CASE("message checks refuse what is not a message or no indices") {
  Stream stream(test_stream(1));
  GuardedTensor small(DType::u8, {15});
  CHECK_THROWS_WITH(write_words(stream, small, kWords), Catch::Contains("a message of 15 bytes"));
  GuardedTensor floats(DType::f32, {3});
  CHECK_THROWS_WITH(check_ascending(stream, floats, 4, 0, raise),
                    Catch::Contains("indices is f32 (3), due is u32 (3)"));
}

}  // namespace slackline::testing
