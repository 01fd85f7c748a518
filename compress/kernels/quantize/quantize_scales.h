#pragma once

#include <bit>
#include <cstdint>

#include "compress/kernels/quantize/quantize.h"
#include "core/cuda/device.h"

// Scales of quantized matrices on the CUDA device, with the bits of the CPU's.
namespace slackline::cuda {

// Where the scale of an element stands among the matrix's.
struct ScaleMap {
  ScaleOf shared;
  std::int64_t group;  // columns of a group; all of them for a row
  std::int64_t groups_per_row;

  ScaleMap(const QuantizedFormat& format, std::int64_t columns)
      : shared(format.shared),
        group(format.shared == ScaleOf::group ? std::min(format.group, columns) : columns),
        groups_per_row((columns + group - 1) / group) {}

  [[nodiscard]] __device__ std::int64_t of(std::int64_t row, std::int64_t column) const {
    switch (shared) {
      case ScaleOf::channel:
        return column;
      case ScaleOf::tensor:
        return 0;
      case ScaleOf::token:
        return row;
      case ScaleOf::group:
        break;
    }
    return row * groups_per_row + column / group;
  }
};

// |value| as an integer, which grows with it, NaN above Inf.
__device__ inline std::uint32_t magnitude(float value) {
  return __float_as_uint(value) & 0x7fffffffU;
}

// The scale of the largest magnitude. The bounds keep 2^f / scale and the step between decoded
// values normal numbers.
__device__ inline BFloat16 scale_of(std::uint32_t largest) {
  constexpr auto kSmallest = std::bit_cast<std::uint32_t>(0x1p-119F);
  constexpr auto kTooLarge = std::bit_cast<std::uint32_t>(0x1p127F);
  const float value = __uint_as_float(largest);
  if (largest < kSmallest) {
    return from_float<BFloat16>(0.0F);
  }
  return from_float<BFloat16>(largest < kTooLarge ? value : value + HUGE_VALF);  // NaN stays NaN
}

// 2^f / scale; 0 where the scale is 0, Inf or NaN.
__device__ inline float factor_of(BFloat16 scale, float levels) {
  const float value = to_float(scale);
  return value > 0.0F && value < HUGE_VALF ? __fdiv_rn(levels, value) : 0.0F;
}

}  // namespace slackline::cuda
