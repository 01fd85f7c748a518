#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/kernels/simd.h"

// What top_k looks at, range by range.
namespace slackline::cpu {

// A key is the bits of |x|: 31 bits that order as magnitudes do.
inline constexpr std::uint32_t kKeyMask = 0x7fffffff;

// A range's elements or its candidates: the cut is found and written the same way in both.
struct RangeElements {
  const float* values;
  std::uint32_t first_index;
  std::size_t count;

  [[nodiscard]] std::size_t size() const { return count; }

  [[nodiscard]] std::uint32_t bits(std::size_t i) const {
    return std::bit_cast<std::uint32_t>(values[i]);
  }

  [[nodiscard]] std::uint32_t index(std::size_t i) const {
    return first_index + static_cast<std::uint32_t>(i);
  }
};

struct RangeCandidates {
  const std::uint32_t* candidate_bits;
  const std::uint32_t* indices;
  std::size_t count;

  [[nodiscard]] std::size_t size() const { return count; }

  [[nodiscard]] std::uint32_t bits(std::size_t i) const { return candidate_bits[i]; }

  [[nodiscard]] std::uint32_t index(std::size_t i) const { return indices[i]; }
};

// Stores the indices of the elements whose keys are above `bound` (signed: -1 is below all),
// ascending, and returns how many. Writes up to a vector beyond them.
inline std::size_t collect(const RangeElements& elements, std::int32_t bound, std::uint32_t* to) {
  namespace hn = simd::hn;
  using IntTag = hn::RebindToSigned<simd::FloatTag>;
  using Ints = hn::Vec<IntTag>;
  constexpr IntTag kInts;
  constexpr std::size_t kVectors = 4;  // looked at together: most groups hold nothing
  constexpr std::size_t kPrefetchedElements = 512;
  const Ints mask = hn::Set(kInts, static_cast<std::int32_t>(kKeyMask));
  const Ints limit = hn::Set(kInts, bound);
  std::size_t found = 0;
  std::size_t i = 0;
  for (; i + kVectors * simd::kLanes <= elements.count; i += kVectors * simd::kLanes) {
    Ints keys[kVectors];
    Ints largest = hn::Zero(kInts);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const float* from = elements.values + i + v * simd::kLanes;
      hwy::Prefetch(from + kPrefetchedElements);  // a hint, harmless at the end
      keys[v] = hn::And(hn::BitCast(kInts, simd::load(from)), mask);
      largest = hn::Max(largest, keys[v]);
    }
    if (hn::AllFalse(kInts, hn::Gt(largest, limit))) {
      continue;
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto is_above = hn::RebindMask(simd::kWords, hn::Gt(keys[v], limit));
      const auto first = static_cast<std::uint32_t>(i + v * simd::kLanes);
      const simd::Words indices = hn::Iota(simd::kWords, elements.first_index + first);
      hn::StoreU(hn::Compress(indices, is_above), simd::kWords, to + found);
      found += hn::CountTrue(simd::kWords, is_above);
    }
  }
  for (; i < elements.count; ++i) {
    to[found] = elements.index(i);
    found += static_cast<std::int32_t>(elements.bits(i) & kKeyMask) > bound ? 1 : 0;
  }
  return found;
}

}  // namespace slackline::cpu
