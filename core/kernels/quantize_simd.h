#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/kernels/simd.h"

// Vectors of quantize and dequantize: magnitudes, scales, codes (a byte each) and packed codes.
namespace slackline::simd {

using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using Ints = hn::Vec<IntTag>;
using Bytes = hn::Vec<ByteTag>;

inline constexpr IntTag kInts;
inline constexpr ByteTag kBytes;
inline constexpr std::size_t kCodes = hn::MaxLanes(kBytes);  // codes of one vector of bytes

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

// Four vectors of integers in a row as bytes, saturated to [0, 255].
[[nodiscard]] inline Bytes join(Ints a, Ints b, Ints c, Ints d) {
  const hn::Repartition<std::int16_t, FloatTag> shorts;
  const hn::Half<ByteTag> half;
  const auto ab = hn::ReorderDemote2To(shorts, a, b);  // takes turns in blocks of 128 bits
  const auto cd = hn::ReorderDemote2To(shorts, c, d);
  const Bytes mixed = hn::Combine(kBytes, hn::DemoteTo(half, cd), hn::DemoteTo(half, ab));
  constexpr std::size_t kBlocks = kLanes / 4;
  alignas(64) std::int32_t order[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::size_t vector = i / kBlocks;
    const std::size_t block = i % kBlocks;
    order[i] = static_cast<std::int32_t>(vector / 2 * 2 * kBlocks + 2 * block + vector % 2);
  }
  const auto words = hn::BitCast(kInts, mixed);
  return hn::BitCast(kBytes, hn::TableLookupLanes(words, hn::SetTableIndices(kInts, order)));
}

// The packed form of kCodes codes: kCodes * bits / 8 bytes.
template <int bits>
void pack(Bytes codes, std::uint8_t* packed) {
  if constexpr (bits == 8) {
    hn::StoreU(codes, kBytes, packed);
  } else if constexpr (bits == 4) {
    const hn::Repartition<std::uint16_t, FloatTag> pairs;
    const hn::Rebind<std::uint8_t, decltype(pairs)> bytes;
    const auto pair = hn::BitCast(pairs, codes);
    hn::StoreU(hn::TruncateTo(bytes, hn::Or(pair, hn::ShiftRight<4>(pair))), bytes, packed);
  } else {
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    const Words four = hn::BitCast(kWords, codes);
    const Words pairs = hn::Or(four, hn::ShiftRight<6>(four));
    hn::StoreU(hn::TruncateTo(bytes, hn::Or(pairs, hn::ShiftRight<12>(pairs))), bytes, packed);
  }
}

template <int bits>
[[nodiscard]] Bytes unpack(const std::uint8_t* packed) {
  if constexpr (bits == 8) {
    return hn::LoadU(kBytes, packed);
  } else if constexpr (bits == 4) {
    const hn::Repartition<std::uint16_t, FloatTag> pairs;
    const hn::Rebind<std::uint8_t, decltype(pairs)> bytes;
    const auto both = hn::PromoteTo(pairs, hn::LoadU(bytes, packed));
    const auto apart = hn::Or(both, hn::ShiftLeft<4>(both));
    return hn::BitCast(kBytes, hn::And(apart, hn::Set(pairs, 0x0f0f)));
  } else {
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    const Words all = hn::PromoteTo(kWords, hn::LoadU(bytes, packed));
    const Words pairs = hn::Or(all, hn::ShiftLeft<12>(all));
    const Words apart = hn::Or(pairs, hn::ShiftLeft<6>(pairs));
    return hn::BitCast(kBytes, hn::And(apart, hn::Set(kWords, 0x03030303)));
  }
}

// Packs `count` codes; beyond them `codes` holds the code of zero up to a multiple of kCodes.
template <int bits>
void pack_all(const std::uint8_t* codes, std::size_t count, std::uint8_t* packed) {
  std::size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    pack<bits>(hn::LoadU(kBytes, codes + i), packed + i * bits / 8);
  }
  if (i < count) {
    std::uint8_t rest[kCodes];
    pack<bits>(hn::LoadU(kBytes, codes + i), rest);
    std::memcpy(packed + i * bits / 8, rest, ((count - i) * bits + 7) / 8);
  }
}

// Writes codes up to the next multiple of kCodes; reads the bytes of `count` alone.
template <int bits>
void unpack_all(const std::uint8_t* packed, std::size_t count, std::uint8_t* codes) {
  std::size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    hn::StoreU(unpack<bits>(packed + i * bits / 8), kBytes, codes + i);
  }
  if (i < count) {
    std::uint8_t rest[kCodes] = {};
    std::memcpy(rest, packed + i * bits / 8, ((count - i) * bits + 7) / 8);
    hn::StoreU(unpack<bits>(rest), kBytes, codes + i);
  }
}

}  // namespace slackline::simd
