#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "compress/kernels/sparse/top_k_plan.h"
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
  const TopKCandidate* candidates;
  std::size_t count;

  [[nodiscard]] std::size_t size() const { return count; }

  [[nodiscard]] std::uint32_t bits(std::size_t i) const { return candidates[i].bits; }

  [[nodiscard]] std::uint32_t index(std::size_t i) const { return candidates[i].index; }
};

// Which lanes of a group of vectors hold keys above `bound`, lane by lane from the lowest bit.
class KeyGroup {
 public:
  static constexpr std::size_t kVectors = 4;
  static constexpr std::size_t kSize = kVectors * simd::kLanes;

  explicit KeyGroup(std::int32_t bound) : bound_(simd::hn::Set(kInts, bound)) {}

  [[nodiscard]] std::uint64_t lanes_above(const float* values) const {
    std::uint64_t lanes = 0;
    for (std::size_t v = 0; v < kVectors; ++v) {
      const float* from = values + v * simd::kLanes;
      hwy::Prefetch(from + kPrefetchedElements);  // a hint, harmless at the end
      const auto keys = simd::hn::BitCast(kInts, simd::hn::Abs(simd::load(from)));
      std::uint8_t bytes[8] = {};
      simd::hn::StoreMaskBits(kInts, simd::hn::Gt(keys, bound_), bytes);
      const std::uint64_t bits = bytes[0] | static_cast<std::uint64_t>(bytes[1]) << 8U;
      lanes |= bits << (v * simd::kLanes);
    }
    return lanes;
  }

 private:
  using Tag = simd::hn::RebindToSigned<simd::FloatTag>;

  static constexpr Tag kInts{};
  static constexpr std::size_t kPrefetchedElements = 512;
  static_assert(simd::kLanes <= 16, "a group's lanes fit 64 bits");

  simd::hn::Vec<Tag> bound_;
};

// Stores the indices of the elements whose keys are above `bound` (signed: -1 is below all),
// ascending, and returns how many. Writes up to two words beyond them. Most groups hold two at
// most, so that no branch depends on what they hold. (Highway's Compress copies its table to the
// stack at every call here.)
inline std::size_t collect(const RangeElements& elements, std::int32_t bound, std::uint32_t* to) {
  const KeyGroup group(bound);
  std::size_t found = 0;
  std::size_t i = 0;
  for (; i + KeyGroup::kSize <= elements.count; i += KeyGroup::kSize) {
    std::uint64_t lanes = group.lanes_above(elements.values + i);
    const std::uint32_t first = elements.index(i);
    const auto count = static_cast<std::size_t>(std::popcount(lanes));
    std::uint32_t* next = to + found;
    found += count;
    for (std::size_t written = 0; written < 2; ++written) {
      *next++ = first + static_cast<std::uint32_t>(std::countr_zero(lanes));
      lanes &= lanes - 1;
    }
    for (; lanes != 0; lanes &= lanes - 1) {
      *next++ = first + static_cast<std::uint32_t>(std::countr_zero(lanes));
    }
  }
  for (; i < elements.count; ++i) {
    to[found] = elements.index(i);
    found += static_cast<std::int32_t>(elements.bits(i) & kKeyMask) > bound ? 1 : 0;
  }
  return found;
}

}  // namespace slackline::cpu
