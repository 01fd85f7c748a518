#pragma once

#include <bit>
#include <cstdint>

#include "compress/kernels/quantize/quantize.h"
#include "core/cuda/device.h"

// Scales of quantized matrices and what is made of them on the CUDA device, with the bits of the
// CPU's.
namespace slackline::cuda {

// Where the scale of an element stands among the matrix's.
struct ScaleMap {
  ScaleOf shared;
  std::int64_t rows;
  std::int64_t group;  // columns of a group; all of them for a row
  std::int64_t groups_per_row;

  ScaleMap(const QuantizedFormat& format, std::int64_t num_rows, std::int64_t columns)
      : shared(format.shared),
        rows(num_rows),
        group(format.shared == ScaleOf::group ? std::min(format.group, columns) : columns),
        groups_per_row((columns + group - 1) / group) {}

  // The scale of an element, exact in f32.
  [[nodiscard]] __device__ float scale(const BFloat16* scales,
                                       std::int64_t row,
                                       std::int64_t column) const {
    return shared == ScaleOf::both ? to_float(scales[row]) * to_float(scales[rows + column])
                                   : to_float(scales[of(row, column)]);
  }

  // 2^f / scale.
  [[nodiscard]] __device__ float factor(const BFloat16* scales,
                                        std::int64_t row,
                                        std::int64_t column,
                                        float levels) const;

  // REQUIRES: it is one scale.
  [[nodiscard]] __device__ std::int64_t of(std::int64_t row, std::int64_t column) const {
    switch (shared) {
      case ScaleOf::channel:
        return column;
      case ScaleOf::tensor:
        return 0;
      case ScaleOf::token:
        return row;
      case ScaleOf::group:
      case ScaleOf::both:
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

__device__ inline float ScaleMap::factor(const BFloat16* scales,
                                         std::int64_t row,
                                         std::int64_t column,
                                         float levels) const {
  return shared == ScaleOf::both
             ? factor_of(scales[row], levels) * factor_of(scales[rows + column], 1.0F)
             : factor_of(scales[of(row, column)], levels);
}

// Returns the element that takes the place of `before`: a * b, or that added to it or taken off,
// rounded once.
template <Update update>
__device__ float updated(float before, float a, float b) {
  return update == Update::write ? a * b
         : update == Update::add ? fmaf(a, b, before)
                                 : fmaf(-a, b, before);
}

// Scales of rows and columns, of sums of squares.
struct BothScales {
  double reach;
  double rows;
  double columns;

  [[nodiscard]] __device__ BFloat16 of_row(double squares, double all) const {
    return rounded(reach * sqrt(squares / columns), 0x1p-66, all);
  }

  [[nodiscard]] __device__ BFloat16 of_column(double squares, double all) const {
    return rounded(all > 0.0 ? sqrt(squares / rows / (all / (rows * columns))) : 0.0, 0x1p-52, all);
  }

 private:
  static __device__ BFloat16 rounded(double scale, double smallest, double all) {
    if (!(all < 0x1p254)) {
      return from_float<BFloat16>(__uint_as_float(0x7fc00000U));
    }
    return from_float<BFloat16>(scale < smallest ? 0.0F : static_cast<float>(scale));
  }
};

}  // namespace slackline::cuda
