#pragma once

#include <cstdint>

#include "compress/kernels/quantize/quantize.h"
#include "compress/kernels/quantize/quantize_simd.h"
#include "compress/kernels/quantize/quantize_strips.h"
#include "core/kernels/philox_simd.h"

namespace slackline {

// Numbers in (0, 1) for a chunk's elements, in steps of 2^-16 from 2^-17: multiples of a step of
// the scale stay what they are.
class RandomOffsets {
 public:
  explicit RandomOffsets(const RoundingKey& key)  // NOLINT: what is read of halves_ is drawn first
      : words_({.site = key.stream, .step = key.step}, key.message) {}

  // Elements first_element .. first_element + count - 1; count is at most kChunk.
  void draw(std::uint64_t first_element, std::size_t count) {
    skipped_ = first_element % kHalvesPerBlock;
    const std::uint64_t first_block = first_element / kHalvesPerBlock;
    const std::size_t read = (count + simd::kCodes - 1) / simd::kCodes * simd::kCodes;
    for (std::size_t i = 0; i < skipped_ + read; i += kHalvesPerDraw) {
      words_.draw(first_block + i / kHalvesPerBlock, halves_ + i);
    }
  }

  // The numbers of kLanes elements from `i` on, counted from the chunk's first one.
  [[nodiscard]] simd::Floats vector(std::size_t i) const {
    const auto halves = simd::hn::LoadU(simd::kHalfWords, halves_ + skipped_ + i);
    const simd::Floats numbers =
        simd::hn::ConvertTo(simd::kFloats, simd::hn::PromoteTo(simd::kInts, halves));
    return simd::hn::MulAdd(numbers, simd::splat(0x1p-16F), simd::splat(0x1p-17F));
  }

 private:
  using Words = simd::DropoutWords<4>;

  static constexpr std::size_t kHalvesPerBlock = 8;
  static constexpr std::size_t kHalvesPerDraw = 2 * Words::kWords;

  Words words_;
  std::size_t skipped_ = 0;
  std::uint16_t halves_[kChunk + kHalvesPerBlock + kHalvesPerDraw];  // a draw may pass the end
};

}  // namespace slackline
