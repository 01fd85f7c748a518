#include "core/cuda/map.h"
#include "core/kernels/column_sums.h"
#include "core/kernels/elementwise/bias_gradient.h"

// dy is read once: N C elements. A block sums the columns of a strip that 32 threads span, over
// rows that it deals out to 8 threads a column; those are added in order.
namespace slackline::cuda {

namespace {

constexpr unsigned kLanes = kWarp;   // of a block, across the columns
constexpr unsigned kRowThreads = 8;  // of a block, for each column
constexpr int kRowsAtOnce = 4;       // that a thread has on the way

// Fewer blocks of rows than column_sums.h takes by itself: here columns make blocks as well.
constexpr std::int64_t kMostRowBlocks = 96;

RowSplit split_of(std::int64_t N) {
  return RowSplit(N, kMostRowBlocks);
}

// Block (strip, block of rows) writes its strip of the block's row of partials.
template <int n, typename T>
__global__ void __launch_bounds__(kLanes* kRowThreads) sum_rows_kernel(std::int64_t num_rows,
                                                                       std::int64_t rows_per_block,
                                                                       std::int64_t num_columns,
                                                                       const T* dy,
                                                                       float* partials) {
  constexpr unsigned kStrip = kLanes * n;
  __shared__ float parts[kRowThreads][kStrip];
  const std::int64_t strip = std::int64_t{blockIdx.x} * kStrip;
  const std::int64_t column = strip + threadIdx.x * n;
  const std::int64_t begin = std::int64_t{blockIdx.y} * rows_per_block;
  const std::int64_t end = std::min(num_rows, begin + rows_per_block);
  Floats<n> sum{};
  if (column < num_columns) {
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kRowThreads * kRowsAtOnce) {
      Floats<n> rows[kRowsAtOnce];
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
        const std::int64_t at = row + k * kRowThreads;
        rows[k] = at < end ? load<n>(dy + at * num_columns + column) : Floats<n>{};
      }
#pragma unroll
      for (int k = 0; k < kRowsAtOnce; ++k) {
#pragma unroll
        for (int i = 0; i < n; ++i) {
          sum[i] += rows[k][i];
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    parts[threadIdx.y][threadIdx.x * n + i] = sum[i];
  }
  __syncthreads();
  const unsigned own = threadIdx.y * kLanes + threadIdx.x;
  if (own < kStrip && strip + own < num_columns) {
    float total = 0.0F;
    for (unsigned part = 0; part < kRowThreads; ++part) {
      total += parts[part][own];
    }
    partials[blockIdx.y * num_columns + strip + own] = total;
  }
}

template <int n, typename T>
void start(StreamView stream, const RowSplit& split, const Tensor& dy, float* partials) {
  static_assert(n <= kRowThreads, "a thread writes one column");
  const std::int64_t C = dy.dim(1);
  const LaunchShape shape{
      .grid = dim3(blocks_for(static_cast<std::size_t>(C), kLanes * n),
                   static_cast<unsigned>(split.num_blocks)),
      .block = dim3(kLanes, kRowThreads),
  };
  launch(stream,
         shape,
         sum_rows_kernel<n, T>,
         split.num_rows,
         split.rows_per_block,
         C,
         dy.data<T>(),
         partials);
}

}  // namespace

template <typename T>
void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias) {
  const RowSplit split = split_of(dy.dim(0));
  const std::int64_t C = dy.dim(1);
  ArenaScope scratch(stream.workspace());
  const Tensor partials = scratch.allocate(DType::f32, {split.num_blocks, C});
  constexpr int kPack = kPackSize<T>;
  if (C % kPack == 0 && are_aligned(dy.data<T>())) {
    start<kPack, T>(stream, split, dy, partials.data<float>());
  } else {
    start<1, T>(stream, split, dy, partials.data<float>());
  }
  add_partials(stream, split, partials.data<float>(), C, d_bias);
}

std::size_t bias_gradient_workspace_bytes(std::int64_t N, std::int64_t C) {
  return Arena::aligned_bytes(DType::f32, {split_of(N).num_blocks, C});
}

template void bias_gradient<float>(StreamView, const Tensor&, const Tensor&);
template void bias_gradient<BFloat16>(StreamView, const Tensor&, const Tensor&);

}  // namespace slackline::cuda
