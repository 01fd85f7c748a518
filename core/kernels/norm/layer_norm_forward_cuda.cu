#include "core/cuda/map.h"
#include "core/kernels/elementwise/dropout_factors.h"
#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/norm/layer_norm_rows.h"

// A row is read once: its mean, its variance and its elements are made of what the threads hold.
namespace slackline::cuda {

namespace {

constexpr int kMostPacks = 16;  // that a thread holds of longer rows

// Rows that are read from memory.
template <typename T>
struct StoredRows {
  const T* x;

  template <int n, int packs>
  __device__ RowPart<n, packs> take(std::int64_t index, int C) const {
    RowPart<n, packs> row{};
    for_each_pack<n, packs>(
        C, [&](int p, int column) { row.values[p] = load<n>(x + index * C + column); });
    return row;
  }
};

// Rows that are sums, made and kept on the way.
template <bool drops, typename X, typename T>
struct SummedRows {
  const X* x;
  const T* residual;
  T* out;
  DropoutFactors factors;
  std::int64_t first_row;  // in the first sample
  std::int64_t rows_per_sample;

  template <int n, int packs>
  __device__ RowPart<n, packs> take(std::int64_t index, int C) const {
    const std::int64_t stream_row = first_row + index;
    RowPart<n, packs> row{};
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
__global__ void __launch_bounds__(RowShape::kMostThreads) forward_kernel(std::int64_t N,
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
  const RowPart<n, packs> row = rows.template take<n, packs>(row_index, C);
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

// REQUIRES: rows of whole packs, and pointers that are aligned.
template <typename T, typename Rows>
void start_in_packs(StreamView stream, const LayerNormForward& args, const Rows& rows) {
  constexpr int kPack = kPackSize<T>;
  args.x.dim(1) <= std::int64_t{RowShape::kMostThreads} * kPack* RowShape::kPacks
      ? start_forward<kPack, RowShape::kPacks, T>(stream, args, rows)
      : start_forward<kPack, kMostPacks, T>(stream, args, rows);
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
  // Packs are those of the norm alone, which adds in the same order.
  if (!aligned || norm.x.dim(1) % kPackSize<T> != 0) {
    return false;
  }
  start_in_packs<T>(stream, norm, rows);
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
  const StoredRows<T> rows{args.x.data<T>()};
  args.x.dim(1) % kPackSize<T> == 0 && aligned
      ? start_in_packs<T>(stream, args, rows)
      : start_forward<1, RowShape::kSingles, T>(stream, args, rows);
}

template void layer_norm_forward<float>(StreamView, const LayerNormForward&);
template void layer_norm_forward<BFloat16>(StreamView, const LayerNormForward&);

}  // namespace slackline::cuda
