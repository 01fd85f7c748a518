#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"

// Sums over rows, in two kernels without atomics: each block of the first sums some rows into its
// row of partials, and the second adds those up. The order depends on the number of rows alone.
namespace slackline::cuda {

// Which rows a block of the first kernel takes.
struct RowSplit {
  static constexpr std::int64_t kMostBlocks = 264;  // two for each multiprocessor of an H100
  static constexpr std::int64_t kFewestRows = 16;   // a row of partials costs as much as a row

  explicit constexpr RowSplit(std::int64_t N, std::int64_t most_blocks = kMostBlocks)
      : num_rows(N),
        rows_per_block(std::max(kFewestRows, (N + most_blocks - 1) / most_blocks)),
        num_blocks((N + rows_per_block - 1) / rows_per_block) {}

  std::int64_t num_rows;
  std::int64_t rows_per_block;
  std::int64_t num_blocks;
};

inline constexpr unsigned kColumnsPerBlock = 32;
inline constexpr unsigned kPartsPerColumn = 8;

// total[c] += the sum over rows of partials[row * stride + c], in an order that depends on num_rows
// alone. Blocks of kColumnsPerBlock x kPartsPerColumn threads.
__global__ static void add_partials_kernel(const float* partials,
                                           std::int64_t num_rows,
                                           std::int64_t stride,
                                           std::int64_t num_columns,
                                           float* total) {
  __shared__ float parts[kPartsPerColumn][kColumnsPerBlock];
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumnsPerBlock + threadIdx.x;
  float sum = 0.0F;
  if (column < num_columns) {
    for (std::int64_t row = threadIdx.y; row < num_rows; row += kPartsPerColumn) {
      sum += partials[row * stride + column];
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < num_columns) {
    sum = 0.0F;
    for (unsigned part = 0; part < kPartsPerColumn; ++part) {
      sum += parts[part][threadIdx.x];
    }
    total[column] += sum;
  }
}

inline void add_partials(StreamView stream,
                         const RowSplit& split,
                         const float* partials,
                         std::int64_t stride,
                         const Tensor& total) {
  const auto num_columns = static_cast<std::int64_t>(total.num_elements());
  const LaunchShape shape{
      .grid = blocks_for(total.num_elements(), kColumnsPerBlock),
      .block = dim3(kColumnsPerBlock, kPartsPerColumn),
  };
  launch(stream,
         shape,
         add_partials_kernel,
         partials,
         split.num_blocks,
         stride,
         num_columns,
         total.data<float>());
}

}  // namespace slackline::cuda
