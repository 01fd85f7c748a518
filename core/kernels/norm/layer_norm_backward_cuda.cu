#include <algorithm>

#include "core/cuda/map.h"
#include "core/kernels/column_sums.h"
#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/norm/layer_norm_rows.h"

// With n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)),  d_weight += dy n,  d_bias += dy.
// A thread has the same columns in every row that its block takes, so it sums d_weight and d_bias
// of these in registers; the block's sums go to scratch memory, row by row (column_sums.h). Four
// rows of packs are too much for registers where rows are long: such rows are read twice.
namespace slackline::cuda {

namespace {

template <typename T, typename Y>
struct BackwardRows {
  std::int64_t N;
  std::int64_t rows_per_block;
  int C;
  const T* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  const Y* dy;
  T* dx;
  bool accumulate_dx;
  float* partials;  // (blocks, 2 C): d_weight's, then d_bias's
};

// Adds what the block's rows of threads hold for one column, in order, and writes it.
template <int n>
__device__ void write_partial(const Floats<n>& sums, float* to) {
  float* shared = dynamic_shared<float>();
  const unsigned own = (threadIdx.y * blockDim.x + threadIdx.x) * n;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i) {
    shared[own + i] = sums[i];
  }
  __syncthreads();
  if (threadIdx.y != 0 || to == nullptr) {
    return;
  }
  Floats<n> total = sums;
  for (unsigned row = 1; row < blockDim.y; ++row) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      total[i] += shared[row * blockDim.x * n + own + i];
    }
  }
  store<n>(to, total);
}

// What a thread has of a row, as it lies in memory: half the registers of floats.
template <int n, int packs, typename T>
struct StoredPart {
  Pack<T, n> values[packs];

  __device__ float at(int p, int i) const { return to_float(values[p].elements[i]); }
};

template <int n, int packs, typename T>
__device__ StoredPart<n, packs, T> load_stored(const T* from, int C) {
  StoredPart<n, packs, T> part{};
  for_each_pack<n, packs>(C, [&](int p, int column) {
    part.values[p] = *reinterpret_cast<const Pack<T, n>*>(from + column);
  });
  return part;
}

// What a thread reads of a row to sum over it.
template <int n, int packs, typename T, typename Y>
struct RowOperands {
  float mean;
  float rstd;
  StoredPart<n, packs, T> x;
  StoredPart<n, packs, Y> dy;

  __device__ RowOperands(const BackwardRows<T, Y>& args, std::int64_t index, std::int64_t end)
      : mean(0.0F), rstd(0.0F), x{}, dy{} {
    if (index < end) {
      mean = args.mean[index];
      rstd = args.rstd[index];
      x = load_stored<n, packs>(args.x + index * args.C, args.C);
      dy = load_stored<n, packs>(args.dy + index * args.C, args.C);
    }
  }
};

// A row is loaded while the one before it is worked on, and what is added to before the sums that it
// waits for are known; unless its parts are single elements, which take too many registers.
template <int n, int packs, typename T, typename Y>
__global__ void __launch_bounds__(RowShape::kMostThreads) backward_kernel(BackwardRows<T, Y> args) {
  const int C = args.C;
  const std::int64_t begin = std::int64_t{blockIdx.x} * args.rows_per_block;
  const std::int64_t end = std::min(args.N, begin + args.rows_per_block);
  RowPart<n, packs> d_weight{};
  RowPart<n, packs> d_bias{};
  constexpr bool kAhead = n > 1;
  RowOperands<n, packs, T, Y> next(args, begin + threadIdx.y, kAhead ? end : 0);
  // All threads of the block take as many turns: there are barriers in them. Rows beyond the last
  // are zeros.
  for (std::int64_t first = begin; first < end; first += blockDim.y) {
    const std::int64_t index = first + threadIdx.y;
    const RowOperands<n, packs, T, Y> row = kAhead ? next : RowOperands<n, packs, T, Y>(args, index, end);
    if constexpr (kAhead) {
      next = RowOperands<n, packs, T, Y>(args, index + blockDim.y, end);
    }
    const bool adds = args.accumulate_dx && index < end;
    T* const to = args.dx + index * C;
    StoredPart<n, kAhead ? packs : 1, T> held{};
    if (kAhead && adds) {
      held = load_stored<n, kAhead ? packs : 1>(static_cast<const T*>(to), C);
    }
    float sum = 0.0F;
    float sum_normal = 0.0F;
    for_each_pack<n, packs>(C, [&](int p, int column) {
      const Floats<n> weight = load<n>(args.weight + column);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float dy = row.dy.at(p, i);
        const float normal = (row.x.at(p, i) - row.mean) * row.rstd;
        d_weight.values[p][i] = fmaf(dy, normal, d_weight.values[p][i]);
        d_bias.values[p][i] += dy;
        const float g = dy * weight[i];
        sum += g;
        sum_normal = fmaf(g, normal, sum_normal);
      }
    });
    const float mean_g = block_sum(sum, row_scratch()) / static_cast<float>(C);
    const float mean_g_normal = block_sum(sum_normal, row_scratch()) / static_cast<float>(C);
    if (index >= end) {
      continue;
    }
    for_each_pack<n, packs>(C, [&](int p, int column) {
      const Floats<n> weight = load<n>(args.weight + column);
      Floats<n> dx = !kAhead && adds ? load<n>(to + column) : Floats<n>{};
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float g = row.dy.at(p, i) * weight[i];
        const float normal = (row.x.at(p, i) - row.mean) * row.rstd;
        dx[i] += (kAhead ? held.at(p, i) : 0.0F) +
                 (g - fmaf(normal, mean_g_normal, mean_g)) * row.rstd;
      }
      store<n>(to + column, dx);
    });
  }
  float* const partials = args.partials + std::int64_t{blockIdx.x} * 2 * C;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int column = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * n;
    write_partial<n>(d_weight.values[p], column < C ? partials + column : nullptr);
    write_partial<n>(d_bias.values[p], column < C ? partials + C + column : nullptr);
  }
}

constexpr int kGroup = 8;  // rows whose sums a block holds at once: few, so that caches hold them

// What backward needs of one row beside its elements.
struct RowMeans {
  float mean;
  float rstd;
  float g;
  float g_normal;
};

// Rows of any length, a block for each share of them: reads a group of rows for the sums over
// each, and again, a pack of columns after the other, for what is made of them.
template <int n, typename T, typename Y>
__global__ void __launch_bounds__(RowShape::kMostThreads)
    long_backward_kernel(BackwardRows<T, Y> args) {
  __shared__ RowMeans means[kGroup];
  const std::int64_t C = args.C;
  const std::int64_t own = std::int64_t{threadIdx.x} * n;
  const std::int64_t stride = std::int64_t{blockDim.x} * n;
  const std::int64_t begin = std::int64_t{blockIdx.x} * args.rows_per_block;
  const std::int64_t end = std::min(args.N, begin + args.rows_per_block);
  float* const d_weight_of = args.partials + std::int64_t{blockIdx.x} * 2 * C;
  float* const d_bias_of = d_weight_of + C;
  for (std::int64_t first = begin; first < end; first += kGroup) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kGroup, end - first));
    for (int row = 0; row < rows; ++row) {
      const std::int64_t index = first + row;
      const float mean = args.mean[index];
      const float rstd = args.rstd[index];
      float sum = 0.0F;
      float sum_normal = 0.0F;
      for (std::int64_t column = own; column < C; column += stride) {
        const Floats<n> x = load<n>(args.x + index * C + column);
        const Floats<n> dy = load<n>(args.dy + index * C + column);
        const Floats<n> weight = load<n>(args.weight + column);
#pragma unroll
        for (int i = 0; i < n; ++i) {
          const float g = dy[i] * weight[i];
          sum += g;
          sum_normal = fmaf(g, (x[i] - mean) * rstd, sum_normal);
        }
      }
      sum = block_sum(sum, row_scratch());
      sum_normal = block_sum(sum_normal, row_scratch());
      if (threadIdx.x == 0) {
        const auto count = static_cast<float>(C);
        means[row] = {mean, rstd, sum / count, sum_normal / count};
      }
    }
    __syncthreads();
    for (std::int64_t column = own; column < C; column += stride) {
      const Floats<n> weight = load<n>(args.weight + column);
      Floats<n> d_weight = first == begin ? Floats<n>{} : load<n>(d_weight_of + column);
      Floats<n> d_bias = first == begin ? Floats<n>{} : load<n>(d_bias_of + column);
#pragma unroll 4
      for (int row = 0; row < rows; ++row) {
        const RowMeans of = means[row];
        const std::int64_t place = (first + row) * C + column;
        const Floats<n> x = load<n>(args.x + place);
        const Floats<n> dy = load<n>(args.dy + place);
        Floats<n> dx = args.accumulate_dx ? load<n>(args.dx + place) : Floats<n>{};
#pragma unroll
        for (int i = 0; i < n; ++i) {
          const float normal = (x[i] - of.mean) * of.rstd;
          d_weight[i] = fmaf(dy[i], normal, d_weight[i]);
          d_bias[i] += dy[i];
          dx[i] += (dy[i] * weight[i] - fmaf(normal, of.g_normal, of.g)) * of.rstd;
        }
        store<n>(args.dx + place, dx);
      }
      store<n>(d_weight_of + column, d_weight);
      store<n>(d_bias_of + column, d_bias);
    }
    __syncthreads();  // the next group's means take the place of these
  }
}

template <int n, int packs, typename T, typename Y>
void start_backward(StreamView stream, const BackwardRows<T, Y>& rows, unsigned num_blocks) {
  const RowShape row(rows.C, n, packs);
  const LaunchShape shape{
      .grid = num_blocks,
      .block = dim3(row.threads, row.rows),
      .shared_bytes = std::size_t{row.threads} * row.rows * n * sizeof(float),
  };
  launch(stream, shape, backward_kernel<n, packs, T, Y>, rows);
}

// As wide as element types, rows and their pointers allow.
template <typename T, typename Y>
void start_backward(StreamView stream, const BackwardRows<T, Y>& rows, unsigned num_blocks) {
  constexpr int kPack = kPackSize<T, Y>;
  if (rows.C % kPack != 0 || !are_aligned(rows.x, rows.dy, rows.dx, rows.weight)) {
    start_backward<1, RowShape::kSingles>(stream, rows, num_blocks);
  } else if (rows.C <= static_cast<int>(RowShape::kMostThreads) * kPack * RowShape::kPacks) {
    start_backward<kPack, RowShape::kPacks>(stream, rows, num_blocks);
  } else {
    const LaunchShape shape{.grid = num_blocks, .block = RowShape::kMostThreads};
    launch(stream, shape, long_backward_kernel<kPack, T, Y>, rows);
  }
}

template <typename T, typename Y>
void backward_of(StreamView stream, const LayerNormBackward& args) {
  const std::int64_t C = args.x.dim(1);
  const RowSplit split(args.x.dim(0));
  ArenaScope scratch(stream.workspace());
  const Tensor partials = scratch.allocate(DType::f32, {split.num_blocks, 2 * C});
  float* const sums = partials.data<float>();
  const BackwardRows<T, Y> rows{
      .N = split.num_rows,
      .rows_per_block = split.rows_per_block,
      .C = static_cast<int>(C),
      .x = args.x.data<T>(),
      .weight = args.weight.data<float>(),
      .mean = args.mean.data<float>(),
      .rstd = args.rstd.data<float>(),
      .dy = args.dy.data<Y>(),
      .dx = args.dx.data<T>(),
      .accumulate_dx = args.accumulate_dx == Accumulate::yes,
      .partials = sums,
  };
  start_backward(stream, rows, static_cast<unsigned>(split.num_blocks));
  if (!args.d_weight.empty()) {
    add_partials(stream, split, sums, 2 * C, args.d_weight);
  }
  if (!args.d_bias.empty()) {
    add_partials(stream, split, sums + C, 2 * C, args.d_bias);
  }
}

}  // namespace

template <typename T>
void layer_norm_backward(StreamView stream, const LayerNormBackward& args) {
  args.dy.dtype() == DType::f32 ? backward_of<T, float>(stream, args)
                                : backward_of<T, T>(stream, args);
}

std::size_t layer_norm_workspace_bytes(std::int64_t N, std::int64_t C) {
  return Arena::aligned_bytes(DType::f32, {RowSplit(N).num_blocks, 2 * C});
}

template void layer_norm_backward<float>(StreamView, const LayerNormBackward&);
template void layer_norm_backward<BFloat16>(StreamView, const LayerNormBackward&);

}  // namespace slackline::cuda
