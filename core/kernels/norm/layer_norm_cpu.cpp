#include <cmath>

#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/row_blocks.h"
#include "core/kernels/simd.h"

// Forward, per row x of C elements: mean, then variance around it, then y; the row stays in the
// first-level cache for the second and third reading.
//
// Backward, with n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)),  d_weight += dy n,  d_bias += dy
// in two readings of the row. Column sums gather per block of rows in scratch memory.
namespace slackline::cpu {

namespace {

namespace hn = simd::hn;
using simd::Floats;

constexpr std::size_t kRowsPerTask = 8;

struct RowStatistics {
  float mean = 0.0F;
  float rstd = 0.0F;
};

template <typename T>
RowStatistics row_statistics(const T* x, std::size_t C) {
  const auto count = static_cast<float>(C);
  Floats sum = simd::zero();
  simd::for_each_vector(
      C, [&](std::size_t i, auto part) { sum = hn::Add(sum, simd::load(x + i, part)); });
  const float mean = simd::sum_lanes(sum) / count;
  Floats squares = simd::zero();
  simd::for_each_vector(C, [&](std::size_t i, auto part) {
    const Floats centered = simd::keep(hn::Sub(simd::load(x + i, part), simd::splat(mean)), part);
    squares = hn::MulAdd(centered, centered, squares);
  });
  const float variance = simd::sum_lanes(squares) / count;
  return {mean, 1.0F / std::sqrt(variance + kLayerNormEpsilon)};
}

template <typename T>
void normalize_row(
    const T* x, RowStatistics row, const float* weight, const float* bias, std::span<T> y) {
  simd::for_each_vector(y.size(), [&](std::size_t i, auto part) {
    const Floats centered = hn::Sub(simd::load(x + i, part), simd::splat(row.mean));
    const Floats normal = hn::Mul(centered, simd::splat(row.rstd));
    const Floats value =
        hn::MulAdd(normal, simd::load(weight + i, part), simd::load(bias + i, part));
    simd::store(value, y.data() + i, part);
  });
}

// One row of the backward pass; all pointers are to its first element.
template <typename T, typename Y>
struct BackwardRow {
  const T* x = nullptr;
  const Y* dy = nullptr;
  T* dx = nullptr;
  std::size_t C = 0;
  RowStatistics statistics{};

  [[nodiscard]] Floats normal(std::size_t i, auto part) const {
    return hn::Mul(hn::Sub(simd::load(x + i, part), simd::splat(statistics.mean)),
                   simd::splat(statistics.rstd));
  }
};

struct GradientMeans {
  float g = 0.0F;         // mean(g)
  float g_normal = 0.0F;  // mean(g n)
};

// Adds dy n and dy to the block's column sums, and returns what dx needs.
template <typename T, typename Y>
GradientMeans reduce_row(const BackwardRow<T, Y>& row,
                         const float* weight,
                         float* d_weight,
                         float* d_bias) {
  Floats sum = simd::zero();
  Floats sum_normal = simd::zero();
  simd::for_each_vector(row.C, [&](std::size_t i, auto part) {
    const Floats dy = simd::load(row.dy + i, part);
    const Floats normal = row.normal(i, part);
    simd::store(hn::Add(simd::load(d_bias + i, part), dy), d_bias + i, part);
    simd::store(hn::MulAdd(dy, normal, simd::load(d_weight + i, part)), d_weight + i, part);
    const Floats g = hn::Mul(dy, simd::load(weight + i, part));
    sum = hn::Add(sum, g);
    sum_normal = hn::MulAdd(g, normal, sum_normal);
  });
  const auto count = static_cast<float>(row.C);
  return {simd::sum_lanes(sum) / count, simd::sum_lanes(sum_normal) / count};
}

template <typename T, typename Y>
void write_dx(const BackwardRow<T, Y>& row,
              const float* weight,
              GradientMeans means,
              Accumulate accumulate) {
  simd::for_each_vector(row.C, [&](std::size_t i, auto part) {
    const Floats g = hn::Mul(simd::load(row.dy + i, part), simd::load(weight + i, part));
    const Floats mean_part =
        hn::MulAdd(row.normal(i, part), simd::splat(means.g_normal), simd::splat(means.g));
    Floats dx = hn::Mul(hn::Sub(g, mean_part), simd::splat(row.statistics.rstd));
    if (accumulate == Accumulate::yes) {
      dx = hn::Add(simd::load(row.dx + i, part), dx);
    }
    simd::store(dx, row.dx + i, part);
  });
}

template <typename T, typename Y>
void all_rows_backward(StreamView stream, const LayerNormBackward& args) {
  const RowBlocks blocks(args.x.dim(0));
  const auto C = static_cast<std::size_t>(args.x.dim(1));
  const float* weight = args.weight.data<float>();
  const float* mean = args.mean.data<float>();
  const float* rstd = args.rstd.data<float>();
  const T* x = args.x.data<T>();
  const Y* dy = args.dy.data<Y>();
  T* dx = args.dx.data<T>();
  ArenaScope scratch(stream.workspace());
  // Per block: d_weight's sums, then d_bias's.
  const Tensor partials = scratch.allocate(
      DType::f32, {static_cast<std::int64_t>(blocks.num_blocks), 2 * args.x.dim(1)});
  float* sums = partials.data<float>();
  stream.pool().parallel_for(blocks.num_blocks, [&](std::size_t block, int /*thread*/) {
    float* d_weight = sums + block * 2 * C;
    float* d_bias = d_weight + C;
    std::fill_n(d_weight, 2 * C, 0.0F);
    for (std::size_t n = blocks.begin(block); n < blocks.end(block); ++n) {
      const BackwardRow<T, Y> row{x + n * C, dy + n * C, dx + n * C, C, {mean[n], rstd[n]}};
      const GradientMeans means = reduce_row(row, weight, d_weight, d_bias);
      write_dx(row, weight, means, args.accumulate_dx);
    }
  });
  if (!args.d_weight.empty()) {
    add_partials(stream, blocks, sums, 2 * C, args.d_weight.span<float>());
  }
  if (!args.d_bias.empty()) {
    add_partials(stream, blocks, sums + C, 2 * C, args.d_bias.span<float>());
  }
}

}  // namespace

template <typename T>
void layer_norm_forward(StreamView stream, const LayerNormForward& args) {
  const auto N = static_cast<std::size_t>(args.x.dim(0));
  const auto C = static_cast<std::size_t>(args.x.dim(1));
  const T* x = args.x.data<T>();
  T* y = args.y.data<T>();
  const float* weight = args.weight.data<float>();
  const float* bias = args.bias.data<float>();
  const std::span<float> mean = args.mean.span<float>();
  const std::span<float> rstd = args.rstd.span<float>();
  parallel_ranges(stream, N, kRowsPerTask, [=](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const RowStatistics statistics = row_statistics(x + row * C, C);
      mean[row] = statistics.mean;
      rstd[row] = statistics.rstd;
      normalize_row(x + row * C, statistics, weight, bias, std::span<T>(y + row * C, C));
    }
  });
}

template <typename T>
void layer_norm_backward(StreamView stream, const LayerNormBackward& args) {
  args.dy.dtype() == DType::f32 ? all_rows_backward<T, float>(stream, args)
                                : all_rows_backward<T, T>(stream, args);
}

template void layer_norm_forward<float>(StreamView, const LayerNormForward&);
template void layer_norm_forward<BFloat16>(StreamView, const LayerNormForward&);
template void layer_norm_backward<float>(StreamView, const LayerNormBackward&);
template void layer_norm_backward<BFloat16>(StreamView, const LayerNormBackward&);

std::size_t layer_norm_workspace_bytes(std::int64_t N, std::int64_t C) {
  return Arena::aligned_bytes(DType::f32,
                              {static_cast<std::int64_t>(RowBlocks(N).num_blocks), 2 * C});
}

}  // namespace slackline::cpu
