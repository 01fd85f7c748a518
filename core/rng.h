#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace slackline {

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC11). A number is a pure function of a key (seed and logical name) and a counter
// (global index), so any rank can make any element, in any order, with the same bits.
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

// The key of a named stream of numbers: XXH3 of the name, seeded with the run's seed.
[[nodiscard]] PhiloxKey philox_key(std::uint64_t seed, std::string_view name);

// The four 32-bit words of one counter.
[[nodiscard]] PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter);

// Elements 2 * pair and 2 * pair + 1 of a stream of standard normal numbers: Box-Muller in double
// from counter `pair`, cosine first.
[[nodiscard]] std::array<double, 2> normal_pair(PhiloxKey key, std::uint64_t pair);

// Element `index` of a stream of numbers in [0, 1), 53 bits, from counter `index`.
[[nodiscard]] double uniform_number(PhiloxKey key, std::uint64_t index);

// Identifies the dropout masks of one place of the model in one step (CONTRACTS rule 7 lists the
// key: seed, step, site, global sample index, element). Word e % 4 of
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
[[nodiscard]] PhiloxBlock dropout_words(const DropoutKey& key,
                                        std::uint64_t sample,
                                        std::uint64_t block);

// Words below this are dropped; 2^32 * probability, rounded.
[[nodiscard]] std::uint32_t dropout_threshold(float probability);

}  // namespace slackline
