#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace slackline {

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC11). A number is a pure function of a key (seed and logical name) and a counter
// (global index), so any rank can make any element, in any order, with the same bits.
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<std::uint32_t, 2> kPhiloxMultipliers = {0xD2511F53, 0xCD9E8D57};
inline constexpr PhiloxKey kPhiloxWeyl = {0x9E3779B9, 0xBB67AE85};  // added to the key each round

[[nodiscard]] constexpr std::uint32_t low_word(std::uint64_t words) {
  return static_cast<std::uint32_t>(words);
}

[[nodiscard]] constexpr std::uint32_t high_word(std::uint64_t words) {
  return static_cast<std::uint32_t>(words >> 32U);
}

// The key of a named stream of numbers: XXH3 of the name, seeded with the run's seed.
[[nodiscard]] PhiloxKey philox_key(std::uint64_t seed, std::string_view name);

// The four 32-bit words of one counter. Kernels call it too.
[[nodiscard]] constexpr PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {high_word(product1) ^ counter[1] ^ key[0],
               low_word(product1),
               high_word(product0) ^ counter[3] ^ key[1],
               low_word(product0)};
    key[0] += kPhiloxWeyl[0];
    key[1] += kPhiloxWeyl[1];
  }
  return counter;
}

// Elements 2 * pair and 2 * pair + 1 of a stream of standard normal numbers: Box-Muller in double
// from counter `pair`, cosine first.
[[nodiscard]] std::array<double, 2> normal_pair(PhiloxKey key, std::uint64_t pair);

// Fills `values` with elements `first` and on of that stream, times `deviation`, rounded.
void draw_normal(std::span<float> values,
                 PhiloxKey key,
                 std::size_t first = 0,
                 double deviation = 1.0);

// Element `index` of a stream of numbers in [0, 1), 53 bits, from counter `index`.
[[nodiscard]] double uniform_number(PhiloxKey key, std::uint64_t index);

// Identifies the dropout masks of one place of the model in one step by seed, step,
// site, global sample index and element. Word e % 4 of
//   philox(philox_key(seed, site), {e / 4 low, e / 4 high, sample low, step low}) with the upper
// halves of sample and step folded into the key decides element e of that sample: it is dropped
// when the word is below probability * 2^32.
struct DropoutKey {
  float probability = 0.0F;        // 0: no dropout, nothing is drawn
  PhiloxKey site{};                // philox_key(seed, "dropout/h.3.attn") and the like
  std::uint64_t step = 0;          // optimizer step, from 1
  std::uint64_t first_sample = 0;  // global index of the micro-batch's first sample
};

// The words of elements 4 * block .. 4 * block + 3 of `sample` (global index).
[[nodiscard]] constexpr PhiloxBlock dropout_words(const DropoutKey& key,
                                                  std::uint64_t sample,
                                                  std::uint64_t block) {
  const PhiloxKey folded = {key.site[0] ^ high_word(sample), key.site[1] ^ high_word(key.step)};
  return philox(folded, {low_word(block), high_word(block), low_word(sample), low_word(key.step)});
}

// Words below this are dropped; 2^32 * probability, rounded.
[[nodiscard]] std::uint32_t dropout_threshold(float probability);

}  // namespace slackline
