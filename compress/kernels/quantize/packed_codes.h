#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/kernels/simd.h"

// Codes of 2, 3, 4 or 8 bits, a byte each or packed: one behind the other, low bits first.
namespace slackline::simd {

using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using Bytes = hn::Vec<ByteTag>;

inline constexpr ByteTag kBytes;
inline constexpr std::size_t kCodes = hn::MaxLanes(kBytes);  // codes of one vector of bytes

// Eight codes in a word, and where two and four of 3 bits stand there.
inline constexpr hn::Repartition<std::uint64_t, FloatTag> kEights;
inline constexpr std::uint64_t kPairsOf3 = 0x003f003f003f003f;
inline constexpr std::uint64_t kFoursOf3 = 0x00000fff00000fff;

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
  } else if constexpr (bits == 3) {  // eight to three bytes
    auto eight = hn::BitCast(kEights, codes);
    eight = hn::And(hn::Or(eight, hn::ShiftRight<5>(eight)), hn::Set(kEights, kPairsOf3));
    eight = hn::And(hn::Or(eight, hn::ShiftRight<10>(eight)), hn::Set(kEights, kFoursOf3));
    std::array<std::uint64_t, kCodes / 8> words{};
    hn::StoreU(hn::Or(eight, hn::ShiftRight<20>(eight)), kEights, words.data());
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::memcpy(packed + 3 * i, &words[i], 3);
    }
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
  } else if constexpr (bits == 3) {
    std::array<std::uint64_t, kCodes / 8> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::memcpy(&words[i], packed + 3 * i, 3);
    }
    auto eight = hn::LoadU(kEights, words.data());
    eight = hn::And(hn::Or(eight, hn::ShiftLeft<20>(eight)), hn::Set(kEights, kFoursOf3));
    eight = hn::And(hn::Or(eight, hn::ShiftLeft<10>(eight)), hn::Set(kEights, kPairsOf3));
    const auto apart = hn::Or(eight, hn::ShiftLeft<5>(eight));
    return hn::And(hn::BitCast(kBytes, apart), hn::Set(kBytes, 7));
  } else {
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    const Words all = hn::PromoteTo(kWords, hn::LoadU(bytes, packed));
    const Words pairs = hn::Or(all, hn::ShiftLeft<12>(all));
    const Words apart = hn::Or(pairs, hn::ShiftLeft<6>(pairs));
    return hn::BitCast(kBytes, hn::And(apart, hn::Set(kWords, 0x03030303)));
  }
}

// Packs `count` codes, clipped to the largest there is; beyond them `codes` holds the code of zero
// up to a multiple of kCodes.
template <int bits>
void pack_all(const std::uint8_t* codes, std::size_t count, std::uint8_t* packed) {
  const Bytes largest = hn::Set(kBytes, static_cast<std::uint8_t>((1U << bits) - 1));
  std::size_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    pack<bits>(hn::Min(hn::LoadU(kBytes, codes + i), largest), packed + i * bits / 8);
  }
  if (i < count) {
    std::uint8_t rest[kCodes];
    pack<bits>(hn::Min(hn::LoadU(kBytes, codes + i), largest), rest);
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
