#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

[[nodiscard]] std::size_t size_of(DType dtype);       // bytes of one element
[[nodiscard]] std::string_view name_of(DType dtype);  // "f32", "bf16", ...

template <typename T>
struct DTypeOf;

template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};

template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};

template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};

template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};

template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};

template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};

template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::u16;
};

template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};

template <typename T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

}  // namespace slackline
