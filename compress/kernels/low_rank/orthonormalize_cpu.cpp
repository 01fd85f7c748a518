#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/kernels/low_rank/orthonormalize.h"
#include "compress/kernels/low_rank/thin_products.h"

// A matrix is transposed first, so that its columns are rows in memory; one thread does all of one
// matrix. Blocked: columns go in panels of kPanel. What the finished columns span is taken out of a
// whole panel twice (once leaves rounding errors as large as what was taken, twice leaves none:
// Giraud, Langou, Rozloznik 2005), by products that read the finished columns once per panel; then
// the panel's own columns follow one by one in the same manner. A column of which little is left by
// then is taken through all columns before it again: what rounding gave it of them counts now.
namespace slackline::cpu {

namespace {

constexpr std::size_t kPanel = 16;
constexpr float kMostlyGone = 1e-2F;  // of a column's length: what is left has errors that count

// The columns of a matrix as rows, and scratch.
struct Columns {
  float* data = nullptr;  // (r, n)
  std::size_t n = 0;
  std::size_t r = 0;
  float* coefficients = nullptr;  // (r, kPanel)
  float* lengths = nullptr;       // (r): of the columns as they were given

  [[nodiscard]] float* column(std::size_t k) const { return data + k * n; }
};

float dot(const float* a, const float* b, std::size_t n) {
  float result = 0.0F;
  thin::dots<1, 1>(a, b, n, &result, 1);
  return result;
}

float length_of(const float* x, std::size_t n) {
  return std::sqrt(dot(x, x, n));
}

// y -= (x . y) x
void take_out(const float* x, float* y, std::size_t n) {
  const simd::Floats share = simd::splat(-dot(x, y, n));
  simd::for_each_vector(n, [=](std::size_t i, auto part) {
    simd::store(
        simd::hn::MulAdd(share, simd::load(x + i, part), simd::load(y + i, part)), y + i, part);
  });
}

// To length 1, or to zero where next to nothing of the column is left.
void normalize(const Columns& columns, std::size_t k, Orthogonalization method) {
  const float left = length_of(columns.column(k), columns.n);
  const bool depends = left <= least_share_left(method) * columns.lengths[k];
  simd::scale_elements(columns.column(k), columns.n, depends ? 0.0F : 1.0F / left);
}

void gram_schmidt(const Columns& columns) {
  for (std::size_t k = 0; k < columns.r; ++k) {
    normalize(columns, k, Orthogonalization::gram_schmidt);
    for (std::size_t later = k + 1; later < columns.r; ++later) {
      take_out(columns.column(k), columns.column(later), columns.n);
    }
  }
}

void take_out_finished(const Columns& columns, std::size_t first, std::size_t count) {
  float* panel = columns.column(first);
  dot_rows(columns.data, first, panel, count, columns.n, columns.coefficients);
  simd::scale_elements(columns.coefficients, first * count, -1.0F);
  add_combinations(columns.data, first, columns.coefficients, count, columns.n, panel);
}

// Columns [first, k) out of column k.
void take_out_twice(const Columns& columns, std::size_t first, std::size_t k) {
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t earlier = first; earlier < k; ++earlier) {
      take_out(columns.column(earlier), columns.column(k), columns.n);
    }
  }
}

void blocked_gram_schmidt(const Columns& columns) {
  for (std::size_t first = 0; first < columns.r; first += kPanel) {
    const std::size_t count = std::min(kPanel, columns.r - first);
    take_out_finished(columns, first, count);
    take_out_finished(columns, first, count);
    for (std::size_t k = first; k < first + count; ++k) {
      take_out_twice(columns, first, k);
      if (length_of(columns.column(k), columns.n) < kMostlyGone * columns.lengths[k]) {
        take_out_twice(columns, 0, k);
      }
      normalize(columns, k, Orthogonalization::blocked);
    }
  }
}

// The power of two that brings the largest element to [1, 2); 0 for all zeros, NaN where an
// element is not finite.
float scale_of(const float* values, std::size_t count) {
  float largest = 0.0F;
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    finite = finite && std::isfinite(values[i]);
  }
  if (!finite) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return largest == 0.0F ? 0.0F : std::ldexp(1.0F, std::clamp(-std::ilogb(largest), -126, 126));
}

void transpose(const float* from, float factor, std::size_t rows, std::size_t columns, float* to) {
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      to[j * rows + i] = factor * from[i * columns + j];
    }
  }
}

void orthonormalize_one(float* values, const Columns& columns, Orthogonalization method) {
  const std::size_t count = columns.n * columns.r;
  const float factor = scale_of(values, count);
  if (std::isnan(factor)) {
    std::fill_n(values, count, factor);
    return;
  }
  transpose(values, factor, columns.n, columns.r, columns.data);
  for (std::size_t k = 0; k < columns.r; ++k) {
    columns.lengths[k] = length_of(columns.column(k), columns.n);
  }
  method == Orthogonalization::blocked ? blocked_gram_schmidt(columns) : gram_schmidt(columns);
  transpose(columns.data, 1.0F, columns.r, columns.n, values);
}

Shape scratch_shape(std::span<const Tensor> matrices, int num_threads) {
  std::size_t largest = 0;
  for (const Tensor& matrix : matrices) {
    const auto r = static_cast<std::size_t>(matrix.dim(1));
    largest = std::max(largest, matrix.num_elements() + r * (kPanel + 1));
  }
  return {num_threads, static_cast<std::int64_t>(largest)};
}

}  // namespace

void orthonormalize(StreamView stream, std::span<const Tensor> matrices, Orthogonalization method) {
  ArenaScope scope(stream.workspace());
  const Shape shape = scratch_shape(matrices, stream.pool().num_threads());
  float* scratch = scope.allocate(DType::f32, shape).data<float>();
  stream.pool().parallel_for(matrices.size(), [&](std::size_t task, int thread) {
    const Tensor& matrix = matrices[task];
    if (matrix.num_elements() == 0) {
      return;
    }
    Columns columns{.data = scratch + static_cast<std::size_t>(thread * shape[1]),
                    .n = static_cast<std::size_t>(matrix.dim(0)),
                    .r = static_cast<std::size_t>(matrix.dim(1))};
    columns.coefficients = columns.data + matrix.num_elements();
    columns.lengths = columns.coefficients + columns.r * kPanel;
    orthonormalize_one(matrix.data<float>(), columns, method);
  });
}

std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices, int num_threads) {
  return Arena::aligned_bytes(DType::f32, scratch_shape(matrices, num_threads));
}

}  // namespace slackline::cpu
