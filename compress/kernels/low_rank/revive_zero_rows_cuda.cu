#include <numbers>

#include "compress/kernels/low_rank/revive_zero_rows.h"
#include "core/cuda/device.h"
#include "core/cuda/launch.h"

namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;

// 53 random bits as a number in [0, 1).
__device__ inline double to_unit(std::uint32_t upper, std::uint32_t lower) {
  const std::uint64_t bits = (std::uint64_t{upper} << 32U | lower) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

__device__ inline double first_of_normal_pair(PhiloxKey key, std::uint64_t pair) {
  const PhiloxBlock words = philox(key, {low_word(pair), high_word(pair), 0, 0});
  const double radius = sqrt(-2.0 * log(1.0 - to_unit(words[0], words[1])));
  return radius * cos(2.0 * std::numbers::pi * to_unit(words[2], words[3]));
}

// A block for each row. Nearly all find a number in the first places, and are done.
__global__ void __launch_bounds__(kThreads)
    revive_kernel(float* matrix, std::int64_t num_columns, PhiloxKey key) {
  __shared__ float scratch[kThreads / kWarp];
  const std::int64_t first = blockIdx.x * num_columns;
  for (std::int64_t begin = 0; begin < num_columns; begin += kThreads) {
    const std::int64_t column = begin + threadIdx.x;
    const bool is_number = column < num_columns && matrix[first + column] != 0.0F;
    if (block_max(is_number ? 1.0F : 0.0F, scratch) != 0.0F) {
      return;
    }
  }
  for (std::int64_t column = threadIdx.x; column < num_columns; column += kThreads) {
    matrix[first + column] =
        static_cast<float>(first_of_normal_pair(key, static_cast<std::uint64_t>(first + column)));
  }
}

}  // namespace

void revive_zero_rows(StreamView stream, const Tensor& matrix, PhiloxKey key) {
  launch(stream,
         {.grid = static_cast<unsigned>(matrix.dim(0)), .block = kThreads},
         revive_kernel,
         matrix.data<float>(),
         matrix.dim(1),
         key);
}

}  // namespace slackline::cuda
