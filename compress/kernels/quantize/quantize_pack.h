#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "compress/kernels/quantize/code_widths.h"
#include "compress/kernels/quantize/quantize.h"
#include "compress/kernels/quantize/quantize_simd.h"
#include "compress/kernels/quantize/quantize_strips.h"
#include "core/kernels/philox_simd.h"

// How quantize makes packed codes of elements whose factors (2^f / scale) are known.
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

// Memory to be read soon, one address for each element that is being rounded; they may lie beyond
// its end, or be the same.
struct Ahead {
  const float* x;
  const float* sum;

  void prefetch(std::size_t first) const {
    constexpr std::size_t kLine = 64 / sizeof(float);
    for (std::size_t i = first; i < first + simd::kCodes; i += kLine) {
      hwy::Prefetch(x + i);
      hwy::Prefetch(sum + i);
    }
  }
};

// Codes of `count` elements, and codes of zero up to the next multiple of kCodes.
// round(x, factor, i) gives kLanes codes, unclipped.
template <typename Round>
void make_codes(std::span<const float> x,
                const float* factors,
                const Ahead& ahead,
                const Round& round,
                std::uint8_t* codes) {
  const auto make_block = [&](const float* values, const float* by, std::size_t i) {
    const auto vector = [&](std::size_t k) {
      const std::size_t at = k * simd::kLanes;
      return round(simd::load(values + at), simd::load(by + at), i + at);
    };
    simd::hn::StoreU(
        simd::join(vector(0), vector(1), vector(2), vector(3)), simd::kBytes, codes + i);
  };
  std::size_t i = 0;
  for (; i + simd::kCodes <= x.size(); i += simd::kCodes) {
    ahead.prefetch(i);
    make_block(&x[i], factors + i, i);
  }
  if (i < x.size()) {
    std::array<float, simd::kCodes> rest{};
    std::array<float, simd::kCodes> rest_factors{};
    std::memcpy(rest.data(), &x[i], (x.size() - i) * sizeof(float));
    std::memcpy(rest_factors.data(), factors + i, (x.size() - i) * sizeof(float));
    make_block(rest.data(), rest_factors.data(), i);
  }
}

// Elements to codes to packed codes.
class CodePacker {
 public:
  CodePacker(const Quantize& args, std::size_t columns)
      : bits_(static_cast<unsigned>(args.to.format.bits)),
        offset_(args.to.format.offset()),
        columns_(columns),
        row_bytes_(static_cast<std::size_t>(args.to.packed.dim(1))),
        packed_(args.to.packed.data<std::uint8_t>()),
        key_(args.stochastic) {}

  [[nodiscard]] float levels() const { return static_cast<float>(1U << (bits_ - 1U)); }

  // Quantizes a strip's elements x; factors_of(first, count) points to a chunk's factors.
  template <typename FactorsOf>
  void pack(const Strip& strip,
            const float* x,
            const Ahead& ahead,
            const FactorsOf& factors_of) const {
    std::uint8_t* row = packed_ + strip.row * row_bytes_;
    for_each_chunk(strip.count, [&](std::size_t first, std::size_t count) {
      alignas(64) std::uint8_t codes[kChunk];
      const std::size_t column = strip.column + first;
      const Chunk chunk{.x = {x + first, count},
                        .factors = factors_of(first, count),
                        .ahead = {ahead.x + first, ahead.sum + first},
                        .first_element = strip.row * columns_ + column};
      key_              ? round_at_random(chunk, codes)
      : offset_ == 0.0F ? round_to_nearest(chunk, codes)
                        : round_to_nearest_between(chunk, codes);
      if (key_ && offset_ != 0.0F) {  // no level is zero, so that random numbers show
        std::fill_n(
            codes + count, (kChunk - count) % simd::kCodes, static_cast<std::uint8_t>(levels()));
      }
      std::uint8_t* to = row + column * bits_ / 8;
      with_code_width(static_cast<int>(bits_),
                      [&](auto bits) { simd::pack_all<bits>(codes, count, to); });
    });
  }

 private:
  struct Chunk {
    std::span<const float> x;
    const float* factors;
    Ahead ahead;
    std::uint64_t first_element;  // of the matrix
  };

  void round_to_nearest(const Chunk& chunk, std::uint8_t* codes) const {
    const auto to_code = simd::splat(simd::kRounder + levels());
    const auto round = [&](simd::Floats x, simd::Floats factor, std::size_t /*i*/) {
      return simd::integers(simd::hn::MulAdd(x, factor, to_code));
    };
    make_codes(chunk.x, chunk.factors, chunk.ahead, round, codes);
  }

  void round_to_nearest_between(const Chunk& chunk, std::uint8_t* codes) const {
    const auto to_code = simd::splat(simd::kRounder + levels());
    const auto offset = simd::splat(offset_);
    const auto lowest = simd::splat(-2.0F * levels());  // far below, it would pass for a high one
    const auto round = [&](simd::Floats x, simd::Floats factor, std::size_t /*i*/) {
      const auto position = simd::hn::Max(simd::hn::MulSub(x, factor, offset), lowest);
      return simd::integers(simd::hn::Add(position, to_code));
    };
    make_codes(chunk.x, chunk.factors, chunk.ahead, round, codes);
  }

  void round_at_random(const Chunk& chunk, std::uint8_t* codes) const {
    RandomOffsets offsets(*key_);
    offsets.draw(key_->first_element + chunk.first_element, chunk.x.size());
    const auto offset = simd::splat(offset_);
    const auto lowest = simd::splat(-2.0F * levels());
    const auto to_code = simd::splat(simd::kRounder + levels());
    const auto round = [&](simd::Floats x, simd::Floats factor, std::size_t i) {
      const auto drawn = simd::hn::Sub(offsets.vector(i), offset);
      const auto moved = simd::hn::MulAdd(x, factor, drawn);
      return simd::integers(simd::hn::Add(simd::hn::Floor(simd::hn::Max(moved, lowest)), to_code));
    };
    make_codes(chunk.x, chunk.factors, chunk.ahead, round, codes);
  }

  unsigned bits_;
  float offset_;
  std::size_t columns_;
  std::size_t row_bytes_;
  std::uint8_t* packed_;
  std::optional<RoundingKey> key_;
};

}  // namespace slackline
