#include "compress/kernels/low_rank/revive_zero_rows.h"

#include <algorithm>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void revive_zero_rows(StreamView stream, const Tensor& matrix, PhiloxKey key))

namespace cpu {

void revive_zero_rows(StreamView /*stream*/, const Tensor& matrix, PhiloxKey key) {
  for (std::int64_t row = 0; row < matrix.dim(0); ++row) {
    const std::span<float> values = matrix.rows(row, row + 1).span<float>();
    const auto is_zero = [](float value) { return value == 0.0F; };
    if (!is_zero(values.front()) || !std::ranges::all_of(values, is_zero)) {
      continue;
    }
    const auto first = static_cast<std::uint64_t>(row * matrix.dim(1));
    for (std::size_t c = 0; c < values.size(); ++c) {
      values[c] = static_cast<float>(normal_pair(key, first + c)[0]);
    }
  }
}

}  // namespace cpu

void revive_zero_rows(StreamView stream, const Tensor& matrix, PhiloxKey key) {
  SL_CHECK(matrix.shape().rank() == 2, "revive_zero_rows takes a matrix");
  check_operand(matrix, {"revive_zero_rows matrix", DType::f32, matrix.shape()});
  if (matrix.num_elements() > 0) {
    SL_BACKEND(stream, revive_zero_rows, stream, matrix, key);
  }
}

}  // namespace slackline
