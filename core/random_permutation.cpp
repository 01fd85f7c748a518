#include "core/random_permutation.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

constexpr std::size_t kWordsPerBlock = 4;  // of Philox

// The least number whose square is at least n; at most 65536.
std::uint32_t side_of(std::uint64_t n) {
  auto side = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (side * side < n) {
    ++side;
  }
  return static_cast<std::uint32_t>(side);
}

}  // namespace

RandomPermutation::RandomPermutation(PhiloxKey key, std::uint64_t n)
    : side_(side_of(n)), last_(static_cast<std::uint32_t>(n - 1)) {
  SL_CHECK(n >= 1 && n <= std::numeric_limits<std::uint32_t>::max(),
           "a permutation of " + std::to_string(n));
  for (std::size_t i = 0; i < round_keys_.size(); ++i) {
    const auto block = static_cast<std::uint32_t>(i / kWordsPerBlock);
    round_keys_[i] = philox(key, {block, 0, 0, 0})[i % kWordsPerBlock];
  }
}

std::uint32_t RandomPermutation::round_function(std::uint32_t right,
                                                std::uint32_t round_key) const {
  std::uint32_t word = (right + round_key) * kMultiplier0;
  word = (word ^ (word >> kShift)) * kMultiplier1;
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(word) * side_ >> 32U);
}

std::uint32_t RandomPermutation::operator()(std::uint32_t x) const {
  std::uint32_t left = x / side_;
  std::uint32_t right = x % side_;
  do {
    for (const std::uint32_t round_key : round_keys_) {
      std::uint32_t sum = left + round_function(right, round_key);
      sum -= sum >= side_ ? side_ : 0;
      left = std::exchange(right, sum);
    }
    x = left * side_ + right;
  } while (x > last_);
  return x;
}

}  // namespace slackline
