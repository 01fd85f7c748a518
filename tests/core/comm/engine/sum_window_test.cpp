#include "core/comm/engine/sum_window.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {
namespace {

constexpr std::size_t kLimit = 100;

std::vector<bool> which_may_begin(const SumWindow& window, std::size_t count) {
  std::vector<bool> may(count);
  for (std::size_t i = 0; i < count; ++i) {
    may[i] = window.may_begin(i);
  }
  return may;
}

}  // namespace

TEST_CASE("sums begin in order while those before them have less than the limit") {
  SumWindow window(kLimit);
  for (const std::size_t bytes : {40U, 40U, 40U, 40U, 10U}) {
    window.add(bytes);
  }
  REQUIRE(which_may_begin(window, 5) == std::vector<bool>{true, true, true, false, false});
  window.end(1);  // the oldest one has not ended
  REQUIRE(which_may_begin(window, 5) == std::vector<bool>{true, true, true, false, false});
  window.end(0);
  REQUIRE(which_may_begin(window, 5) == std::vector<bool>(5, true));
  for (const SumWindow::Ticket sum : {4U, 2U, 3U}) {
    REQUIRE_FALSE(window.empty());
    window.end(sum);
  }
  REQUIRE(window.empty());
  REQUIRE(window.add(kLimit) == 5);
}

TEST_CASE("two sums may be under way whatever their sizes") {
  SumWindow window(kLimit);
  for (int i = 0; i < 3; ++i) {
    window.add(10 * kLimit);
  }
  REQUIRE(which_may_begin(window, 3) == std::vector<bool>{true, true, false});
  window.end(0);
  REQUIRE(window.may_begin(2));
}

TEST_CASE("messages that are not cut leave sums without a limit") {
  REQUIRE(SumWindow::limit_of(std::size_t{1} << 19U) == std::size_t{64} << 20U);
  SumWindow window(SumWindow::limit_of(0));
  for (int i = 0; i < 9; ++i) {
    REQUIRE(window.may_begin(window.add(std::size_t{1} << 50U)));
  }
}

// Each rank ends what all have begun, in an order of its own.
TEST_CASE("ranks whose sums end in any order all get to the end") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    constexpr int kRanks = 3;
    const std::size_t count = 1 + random() % 12;
    std::vector<SumWindow> windows(kRanks, SumWindow(kLimit));
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t bytes = random() % (2 * kLimit);
      for (SumWindow& window : windows) {
        window.add(bytes);
      }
    }
    std::vector<std::vector<bool>> ended(kRanks, std::vector<bool>(count));
    std::size_t left = kRanks * count;
    while (left > 0) {
      std::vector<std::pair<std::size_t, SumWindow::Ticket>> can_end;
      for (SumWindow::Ticket sum = 0; sum < count; ++sum) {
        const bool all_have_begun = std::ranges::all_of(
            windows, [&](const SumWindow& window) { return window.may_begin(sum); });
        for (std::size_t rank = 0; rank < kRanks && all_have_begun; ++rank) {
          if (!ended[rank][sum]) {
            can_end.emplace_back(rank, sum);
          }
        }
      }
      REQUIRE_FALSE(can_end.empty());
      const auto [rank, sum] = can_end[random() % can_end.size()];
      windows[rank].end(sum);
      ended[rank][sum] = true;
      --left;
    }
  }
}

}  // namespace slackline
