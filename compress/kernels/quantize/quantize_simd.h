#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compress/kernels/quantize/packed_codes.h"
#include "compress/kernels/quantize/quantize.h"
#include "core/kernels/simd.h"

// Vectors of quantize: magnitudes, scales, and numbers rounded to codes.
namespace slackline::simd {

using IntTag = hn::RebindToSigned<FloatTag>;
using Ints = hn::Vec<IntTag>;

inline constexpr IntTag kInts;

// |value| as an integer, which grows with it, NaN above Inf: a maximum of floats would lose a NaN.
[[nodiscard]] inline Ints magnitude(Floats values) {
  return hn::BitCast(kInts, hn::Abs(values));
}

// max |values[i]|, as magnitude() gives it.
[[nodiscard]] inline std::int32_t max_magnitude(const float* values, std::size_t count) {
  constexpr std::size_t kSums = 4;  // independent, to hide the latency
  Ints largest[kSums];
  std::fill_n(largest, kSums, hn::Zero(kInts));
  std::size_t i = 0;
  for (; i + kSums * kLanes <= count; i += kSums * kLanes) {
    for (std::size_t k = 0; k < kSums; ++k) {
      largest[k] = hn::Max(largest[k], magnitude(load(values + i + k * kLanes)));
    }
  }
  for_each_vector(count - i, [&](std::size_t j, auto part) {
    largest[0] = hn::Max(largest[0], magnitude(load(values + i + j, part)));
  });
  const Ints all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  return hn::GetLane(hn::MaxOfLanes(kInts, all));
}

// Updates what lies at `to` by a * b, rounded once.
template <Update update>
void store_product(Floats a, Floats b, float* to, auto part) {
  if constexpr (update == Update::write) {
    store(hn::Mul(a, b), to, part);
  } else if constexpr (update == Update::add) {
    store(hn::MulAdd(a, b, load(to, part)), to, part);
  } else {
    store(hn::NegMulAdd(a, b, load(to, part)), to, part);
  }
}

struct Scales {
  Floats scale;   // exact in bf16
  Floats factor;  // 2^f / scale; 0 where the scale is 0, Inf or NaN
};

// `levels` is 2^f. The bounds keep the factor and the step between decoded values normal numbers.
[[nodiscard]] inline Scales scales_of(Ints maxima, float levels) {
  constexpr auto kSmallest = std::bit_cast<std::int32_t>(0x1p-119F);
  constexpr auto kTooLarge = std::bit_cast<std::int32_t>(0x1p127F);
  const auto is_zero = hn::RebindMask(kFloats, hn::Lt(maxima, hn::Set(kInts, kSmallest)));
  const auto is_finite = hn::RebindMask(kFloats, hn::Lt(maxima, hn::Set(kInts, kTooLarge)));
  const Floats largest = hn::BitCast(kFloats, maxima);
  const Floats rounded = round_to<BFloat16>(largest);
  const Floats not_finite = hn::Add(largest, splat(HUGE_VALF));  // Inf, or NaN stays NaN
  const Floats factor = hn::Div(splat(levels), rounded);
  return {.scale = hn::IfThenElse(is_finite, hn::IfThenZeroElse(is_zero, rounded), not_finite),
          .factor = hn::IfThenElseZero(is_finite, hn::IfThenZeroElse(is_zero, factor))};
}

// Added to a float of at most 2^22, the sum's last bits are the float rounded to nearest, ties to
// even.
inline constexpr float kRounder = 0x1.8p23F;

[[nodiscard]] inline Ints integers(Floats plus_rounder) {
  return hn::Sub(hn::BitCast(kInts, plus_rounder),
                 hn::Set(kInts, std::bit_cast<std::int32_t>(kRounder)));
}

// Where join() finds words: its conversions take the operands in turns, block of 128 bits by block.
[[nodiscard]] constexpr std::array<std::int32_t, kLanes> order_of_joined() {
  constexpr std::size_t kBlocks = kLanes / 4;
  std::array<std::int32_t, kLanes> order{};
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::size_t vector = i / kBlocks;
    const std::size_t block = i % kBlocks;
    order[i] = static_cast<std::int32_t>(vector / 2 * 2 * kBlocks + 2 * block + vector % 2);
  }
  return order;
}

// Four vectors of integers in a row as bytes, saturated to [0, 255].
[[nodiscard]] inline Bytes join(Ints a, Ints b, Ints c, Ints d) {
  const hn::Repartition<std::int16_t, FloatTag> shorts;
  const hn::Half<ByteTag> half;
  const auto ab = hn::ReorderDemote2To(shorts, a, b);
  const auto cd = hn::ReorderDemote2To(shorts, c, d);
  const Bytes mixed = hn::Combine(kBytes, hn::DemoteTo(half, cd), hn::DemoteTo(half, ab));
  static constexpr auto kOrder = order_of_joined();
  const auto words = hn::BitCast(kInts, mixed);
  return hn::BitCast(kBytes,
                     hn::TableLookupLanes(words, hn::SetTableIndices(kInts, kOrder.data())));
}

}  // namespace slackline::simd
