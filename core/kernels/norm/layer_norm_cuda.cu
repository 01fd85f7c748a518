#include "core/cuda/map.h"
#include "core/kernels/column_sums.h"
#include "core/kernels/elementwise/dropout_factors.h"
#include "core/kernels/norm/layer_norm.h"

// One or more warps hold a row in registers, so that it is read once: thread t of a row has packs
// t, t + threads, ... of n neighbours. Small rows share a block.
//
// Backward, with n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)),  d_weight += dy n,  d_bias += dy.
// A thread has the same columns in every row that its block takes, so it sums d_weight and d_bias
// of these in registers; the block's sums go to scratch memory, row by row (column_sums.h). Four
// rows of packs are too much for registers where rows are long: such rows are read twice.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 128;  // of a block, where rows are not longer than it holds
constexpr unsigned kMostThreads = 256;
constexpr int kPacks = 4;       // that a thread holds
constexpr int kMostPacks = 16;  // of longer rows, forward
constexpr int kSingles = 32;    // elements, of rows that are not aligned

// How rows of C elements are spread over threads.
struct RowShape {
  RowShape(std::int64_t C, int pack, int packs) {
    const auto per_warp = static_cast<std::int64_t>(kWarp) * pack * packs;
    const std::int64_t warps = std::max<std::int64_t>(1, (C + per_warp - 1) / per_warp);
    SL_CHECK(warps * kWarp <= kMostThreads,
             "layer norm of rows of " + std::to_string(C) + " elements");
    threads = static_cast<unsigned>(warps) * kWarp;
    rows = threads >= kThreads ? 1 : kThreads / threads;
  }

  unsigned threads;  // of one row
  unsigned rows;     // of one block
};

template <int value>
using Constant = std::integral_constant<int, value>;

template <int n, int packs>
struct Row {
  Floats<n> values[packs];
};

// This thread's part of a row; 0 beyond its end.
template <int n, int packs, typename T>
__device__ Row<n, packs> load_row(const T* from, int C) {
  Row<n, packs> row;
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int column = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * n;
    if (column < C) {
      row.values[p] = load<n>(from + column);
    } else {
      row.values[p] = Floats<n>{};
    }
  }
  return row;
}

template <int n, int packs, typename F>
__device__ void for_each_pack(int C, const F& f) {
#pragma unroll
  for (int p = 0; p < packs; ++p) {
    const int column = (p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * n;
    if (column < C) {
      f(p, column);
    }
  }
}

// Shared memory of block_sum() for this thread's row.
__device__ inline float* row_scratch() {
  __shared__ float scratch[kMostThreads / kWarp];
  return scratch + threadIdx.y * (blockDim.x / kWarp);
}

// Where a row comes from: memory.
template <typename T>
struct StoredRows {
  const T* x;

  template <int n, int packs>
  __device__ Row<n, packs> take(std::int64_t index, int C) const {
    return load_row<n, packs>(x + index * C, C);
  }
};

// A sum that is made now, and kept.
template <bool drops, typename X, typename T>
struct SummedRows {
  const X* x;
  const T* residual;
  T* out;
  DropoutFactors factors;
  std::int64_t first_row;  // in the first sample
  std::int64_t rows_per_sample;

  template <int n, int packs>
  __device__ Row<n, packs> take(std::int64_t index, int C) const {
    const std::int64_t stream_row = first_row + index;
    Row<n, packs> row{};
    for_each_pack<n, packs>(C, [&](int p, int column) {
      const std::int64_t place = index * C + column;
      const Floats<n> added = load<n>(x + place);
      Floats<n> sum = load<n>(residual + place);
      if constexpr (drops && n % DropoutFactors::kWordsOfBlock == 0) {
        const Floats<n> drawn = factors.template draw<n>(stream_row / rows_per_sample,
                                                         stream_row % rows_per_sample * C + column);
#pragma unroll
        for (int i = 0; i < n; ++i) {
          sum[i] = fmaf(added[i], drawn[i], sum[i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < n; ++i) {
          sum[i] += added[i];
        }
      }
#pragma unroll
      for (int i = 0; i < n; ++i) {
        sum[i] = static_cast<float>(static_cast<T>(sum[i]));  // as it is kept
      }
      store<n>(out + place, sum);
      row.values[p] = sum;
    });
    return row;
  }
};

template <int n, int packs, typename Rows, typename T>
__global__ void __launch_bounds__(kMostThreads) forward_kernel(std::int64_t N,
                                                               int C,
                                                               Rows rows,
                                                               const float* weight,
                                                               const float* bias,
                                                               T* y,
                                                               float* mean_of,
                                                               float* rstd_of) {
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  // The last block's rows beyond the end go along to the barriers, on the last row.
  const std::int64_t row_index = index < N ? index : N - 1;
  const Row<n, packs> row = rows.template take<n, packs>(row_index, C);
  float sum = 0.0F;
  for_each_pack<n, packs>(C, [&](int p, int /*column*/) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      sum += row.values[p][i];
    }
  });
  const float mean = block_sum(sum, row_scratch()) / static_cast<float>(C);
  float squares = 0.0F;
  for_each_pack<n, packs>(C, [&](int p, int /*column*/) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const float centered = row.values[p][i] - mean;
      squares = fmaf(centered, centered, squares);
    }
  });
  const float variance = block_sum(squares, row_scratch()) / static_cast<float>(C);
  const float rstd = 1.0F / sqrtf(variance + kLayerNormEpsilon);
  if (index >= N) {
    return;
  }
  for_each_pack<n, packs>(C, [&](int p, int column) {
    const Floats<n> scale = load<n>(weight + column);
    const Floats<n> shift = load<n>(bias + column);
    Floats<n> out;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      out[i] = fmaf((row.values[p][i] - mean) * rstd, scale[i], shift[i]);
    }
    store<n>(y + row_index * C + column, out);
  });
  if (threadIdx.x == 0) {
    mean_of[row_index] = mean;
    rstd_of[row_index] = rstd;
  }
}

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

template <int n, int packs, typename T, typename Y>
__global__ void __launch_bounds__(kMostThreads) backward_kernel(BackwardRows<T, Y> args) {
  const int C = args.C;
  const std::int64_t begin = std::int64_t{blockIdx.x} * args.rows_per_block;
  const std::int64_t end = std::min(args.N, begin + args.rows_per_block);
  Row<n, packs> d_weight{};
  Row<n, packs> d_bias{};
  // All threads of the block take as many turns: there are barriers in them.
  for (std::int64_t first = begin; first < end; first += blockDim.y) {
    const std::int64_t index = first + threadIdx.y;
    const bool is_row = index < end;
    const std::int64_t row_index = is_row ? index : end - 1;
    const float mean = args.mean[row_index];
    const float rstd = args.rstd[row_index];
    Row<n, packs> normal = load_row<n, packs>(args.x + row_index * C, C);
    Row<n, packs> g = load_row<n, packs>(args.dy + row_index * C, C);
    float sum = 0.0F;
    float sum_normal = 0.0F;
    for_each_pack<n, packs>(C, [&](int p, int column) {
      const Floats<n> weight = load<n>(args.weight + column);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float dy = g.values[p][i];
        const float normalized = (normal.values[p][i] - mean) * rstd;
        if (is_row) {
          d_weight.values[p][i] = fmaf(dy, normalized, d_weight.values[p][i]);
          d_bias.values[p][i] += dy;
        }
        normal.values[p][i] = normalized;
        g.values[p][i] = dy * weight[i];
        sum += g.values[p][i];
        sum_normal = fmaf(g.values[p][i], normalized, sum_normal);
      }
    });
    const float mean_g = block_sum(sum, row_scratch()) / static_cast<float>(C);
    const float mean_g_normal = block_sum(sum_normal, row_scratch()) / static_cast<float>(C);
    if (!is_row) {
      continue;
    }
    for_each_pack<n, packs>(C, [&](int p, int column) {
      T* const to = args.dx + row_index * C + column;
      Floats<n> dx = args.accumulate_dx ? load<n>(to) : Floats<n>{};
#pragma unroll
      for (int i = 0; i < n; ++i) {
        dx[i] += (g.values[p][i] - fmaf(normal.values[p][i], mean_g_normal, mean_g)) * rstd;
      }
      store<n>(to, dx);
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
__global__ void __launch_bounds__(kMostThreads) long_backward_kernel(BackwardRows<T, Y> args) {
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

// Calls start(pack size, packs), both of them types: as wide as element type T, rows of C and
// their pointers allow.
template <typename T, typename Start>
void choose_packs(std::int64_t C, bool aligned, const Start& start) {
  constexpr int kPack = kPackSize<T>;
  if (C % kPack != 0 || !aligned) {
    start(Constant<1>{}, Constant<kSingles>{});
  } else if (C <= std::int64_t{kMostThreads} * kPack * kPacks) {
    start(Constant<kPack>{}, Constant<kPacks>{});
  } else {
    start(Constant<kPack>{}, Constant<kMostPacks>{});
  }
}

template <int n, int packs, typename T, typename Rows>
void start_forward(StreamView stream, const LayerNormForward& args, const Rows& rows) {
  const std::int64_t N = args.x.dim(0);
  const std::int64_t C = args.x.dim(1);
  const RowShape row(C, n, packs);
  const LaunchShape shape{.grid = blocks_for(static_cast<std::size_t>(N), row.rows),
                          .block = dim3(row.threads, row.rows)};
  launch(stream,
         shape,
         forward_kernel<n, packs, Rows, T>,
         N,
         static_cast<int>(C),
         rows,
         args.weight.data<float>(),
         args.bias.data<float>(),
         args.y.data<T>(),
         args.mean.data<float>(),
         args.rstd.data<float>());
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
    start_backward<1, kSingles>(stream, rows, num_blocks);
  } else if (rows.C <= static_cast<int>(kMostThreads) * kPack * kPacks) {
    start_backward<kPack, kPacks>(stream, rows, num_blocks);
  } else {
    const LaunchShape shape{.grid = num_blocks, .block = kMostThreads};
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
  add_partials(stream, split, sums, 2 * C, args.d_weight);
  add_partials(stream, split, sums + C, 2 * C, args.d_bias);
}

template <bool drops, typename X, typename T>
bool forward_of_sum(StreamView stream, const DropoutAdd& sum, const LayerNormForward& norm) {
  const SummedRows<drops, X, T> rows{.x = sum.x.data<X>(),
                                     .residual = sum.residual.data<T>(),
                                     .out = sum.out.data<T>(),
                                     .factors = dropout_factors(sum),
                                     .first_row = sum.first_row % sum.rows_per_sample,
                                     .rows_per_sample = sum.rows_per_sample};
  const bool aligned = are_aligned(rows.x, rows.residual, rows.out) &&
                       are_aligned(norm.y.data<T>(), norm.weight.data<float>()) &&
                       are_aligned(norm.bias.data<float>());
  constexpr int kPack = kPackSize<T>;  // that of the norm alone, which adds in the same order
  if (!aligned || norm.x.dim(1) % kPack != 0) {
    return false;
  }
  norm.x.dim(1) <= std::int64_t{kMostThreads} * kPack* kPacks
      ? start_forward<kPack, kPacks, T>(stream, norm, rows)
      : start_forward<kPack, kMostPacks, T>(stream, norm, rows);
  return true;
}

template <typename X, typename T>
bool of_sum(StreamView stream, const DropoutAdd& sum, const LayerNormForward& norm) {
  return sum.key.probability == 0.0F ? forward_of_sum<false, X, T>(stream, sum, norm)
                                     : forward_of_sum<true, X, T>(stream, sum, norm);
}

}  // namespace

template <typename T>
bool layer_norm_of_sum(StreamView stream, const DropoutAdd& sum, const LayerNormForward& norm) {
  return sum.x.dtype() == DType::f32 ? of_sum<float, T>(stream, sum, norm)
                                     : of_sum<T, T>(stream, sum, norm);
}

template bool layer_norm_of_sum<float>(StreamView, const DropoutAdd&, const LayerNormForward&);
template bool layer_norm_of_sum<BFloat16>(StreamView, const DropoutAdd&, const LayerNormForward&);

template <typename T>
void layer_norm_forward(StreamView stream, const LayerNormForward& args) {
  const bool aligned = are_aligned(
      args.x.data<T>(), args.y.data<T>(), args.weight.data<float>(), args.bias.data<float>());
  choose_packs<T>(args.x.dim(1), aligned, [&](auto n, auto packs) {
    start_forward<n(), packs(), T>(stream, args, StoredRows<T>{args.x.data<T>()});
  });
}

template <typename T>
void layer_norm_backward(StreamView stream, const LayerNormBackward& args) {
  args.dy.dtype() == DType::f32 ? backward_of<T, float>(stream, args)
                                : backward_of<T, T>(stream, args);
}

std::size_t layer_norm_workspace_bytes(std::int64_t N, std::int64_t C) {
  return Arena::aligned_bytes(DType::f32, {RowSplit(N).num_blocks, 2 * C});
}

template void layer_norm_forward<float>(StreamView, const LayerNormForward&);
template void layer_norm_forward<BFloat16>(StreamView, const LayerNormForward&);
template void layer_norm_backward<float>(StreamView, const LayerNormBackward&);
template void layer_norm_backward<BFloat16>(StreamView, const LayerNormBackward&);

}  // namespace slackline::cuda
