#include "core/comm/engine/sum_scratch.h"

#include <cstddef>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("blocks of sums are as many as the window lets through, and serve again") {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kBlock = 32 * kPage;
  constexpr std::size_t kMessage = kPage;  // the limit is 128 of them
  const SumBytes large{.tensor = 64 * kPage, .received = kBlock};
  REQUIRE(scratch_bytes_of_sums({}, kMessage) == 0);
  REQUIRE(scratch_bytes_of_sums({large}, kMessage) == kBlock);
  REQUIRE(scratch_bytes_of_sums(std::vector<SumBytes>(9, large), kMessage) == 2 * kBlock);
  REQUIRE(scratch_bytes_of_sums(std::vector<SumBytes>(9, large), 0) == 9 * kBlock);
  // A block serves what needs half of it or more; pages are whole.
  const SumBytes small{.tensor = 64 * kPage, .received = 10};
  REQUIRE(scratch_bytes_of_sums({large, large, small, small}, kMessage) == 2 * kBlock + 2 * kPage);
  const SumBytes half{.tensor = 64 * kPage, .received = 16 * kPage};
  REQUIRE(scratch_bytes_of_sums({large, large, half, half}, kMessage) == 2 * kBlock);
}

TEST_CASE("sums of several groups share blocks, and whoever waits for one frees its block") {
  constexpr std::size_t kPage = 4096;
  const SumBytes sum{.tensor = 4 * kPage, .received = kPage};
  SumScratch scratch(kPage);
  const SumScratch::Sum first = scratch.begin(0, sum);
  scratch.begin(1, sum);
  REQUIRE(scratch.bytes() == 2 * kPage);
  scratch.end(first);
  scratch.end(first);
  scratch.begin(1, sum);  // in the first one's
  REQUIRE(scratch.bytes() == 2 * kPage);
  scratch.begin(0, sum);
  REQUIRE(scratch.bytes() == 3 * kPage);
  scratch.begin(0, {.tensor = kPage, .received = 0});
  REQUIRE(scratch.bytes() == 3 * kPage);
}

}  // namespace slackline
