#pragma once

#include <array>
#include <cstdint>

#include "core/rng.h"

namespace slackline {

// A pseudo-random permutation of 0 .. n - 1 as a pure function of (key, n), without tables: its
// first k images are a uniform sample of k of n without replacement, in random order.
//
// Write x < side^2 as (left, right) = (x / side, x % side), side = ceil(sqrt(n)). A Feistel round
//   (left, right) -> (right, (left + F(right)) mod side),   F keyed by the round,
// is a bijection whatever F is, so rounds are one of [0, side^2). Images of n and above are sent
// through the rounds again until they fall below n ("cycle walking"), which gives a bijection of
// [0, n). At most 2 / sqrt(n) of all images need that.
// F mixes with the multipliers of Philox and takes [0, 2^32) to [0, side) by the upper half of a
// product.
// Rounds of an even number are even permutations of [0, side^2), so of all n! orders some come more
// often; which set the first k form does not show it.
class RandomPermutation {
 public:
  static constexpr int kRounds = 16;  // fewer do for large n; the smallest n need as many

  // REQUIRES: 1 <= n < 2^32.
  RandomPermutation(PhiloxKey key, std::uint64_t n);

  // The same, made by a kernel: `side` is side_of(n).
  constexpr RandomPermutation(PhiloxKey key, std::uint64_t n, std::uint32_t side)
      : side_(side), last_(static_cast<std::uint32_t>(n - 1)) {
    constexpr std::uint32_t kWordsPerBlock = 4;  // of Philox
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      round_keys_[i] = philox(key, {i / kWordsPerBlock, 0, 0, 0})[i % kWordsPerBlock];
    }
  }

  // The least number whose square is at least n; at most 65536.
  [[nodiscard]] static std::uint32_t side_of(std::uint64_t n);

  // REQUIRES: x < n. Kernels call it too.
  [[nodiscard]] constexpr std::uint32_t operator()(std::uint32_t x) const {
    std::uint32_t left = x / side_;
    std::uint32_t right = x % side_;
    do {
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        const std::uint32_t sum = left + round_function(right, round_keys_[i]);
        left = right;
        right = sum >= side_ ? sum - side_ : sum;
      }
      x = left * side_ + right;
    } while (x > last_);
    return x;
  }

  [[nodiscard]] std::uint32_t side() const { return side_; }

  [[nodiscard]] std::uint32_t last() const { return last_; }  // n - 1

  [[nodiscard]] std::uint32_t round_key(int round) const {
    return round_keys_[static_cast<std::size_t>(round)];
  }

  // What F is made of, for its twin in vectors.
  static constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
  static constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
  static constexpr int kShift = 16;

 private:
  [[nodiscard]] constexpr std::uint32_t round_function(std::uint32_t right,
                                                       std::uint32_t round_key) const {
    std::uint32_t word = (right + round_key) * kMultiplier0;
    word = (word ^ (word >> kShift)) * kMultiplier1;
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(word) * side_ >> 32U);
  }

  std::uint32_t side_;
  std::uint32_t last_;
  std::array<std::uint32_t, kRounds> round_keys_{};
};

}  // namespace slackline
