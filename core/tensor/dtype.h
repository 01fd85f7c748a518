#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace slackline {

// Storage of a bfloat16: the upper half of a float. Arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;

  // Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
  constexpr explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>((word >> 16U) | 0x40U);
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffU + ((word >> 16U) & 1U)) >> 16U);
    }
  }

  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }

  bool operator==(const BFloat16&) const = default;
};

// Element types of tensors and of files. Kernels compute on f32 and bf16; the others are for
// tokens, indices and for what other programs' files hold.
enum class DType : std::uint8_t {
  f32,
  bf16,
  f64,
  f16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};

// The facts of an element type.
struct DTypeTraits {
  std::string_view name;
  std::size_t bytes;  // of one element
};

// In the order of DType.
inline constexpr std::array<DTypeTraits, 13> kDTypes = {{{"f32", 4},
                                                         {"bf16", 2},
                                                         {"f64", 8},
                                                         {"f16", 2},
                                                         {"i64", 8},
                                                         {"i32", 4},
                                                         {"i16", 2},
                                                         {"i8", 1},
                                                         {"u64", 8},
                                                         {"u32", 4},
                                                         {"u16", 2},
                                                         {"u8", 1},
                                                         {"bool", 1}}};

static_assert(kDTypes.size() == static_cast<std::size_t>(DType::boolean) + 1);

// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)].bytes;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)].name;
}

// The element type of arrays of T.
template <typename T>
inline constexpr DType kDTypeOf =
    std::is_same_v<T, float>           ? DType::f32
    : std::is_same_v<T, BFloat16>      ? DType::bf16
    : std::is_same_v<T, double>        ? DType::f64
    : std::is_same_v<T, std::int64_t>  ? DType::i64
    : std::is_same_v<T, std::int32_t>  ? DType::i32
    : std::is_same_v<T, std::uint32_t> ? DType::u32
    : std::is_same_v<T, std::uint16_t> ? DType::u16
    : std::is_same_v<T, std::uint8_t>  ? DType::u8
                                       : throw "no element type";  // does not compile

}  // namespace slackline
