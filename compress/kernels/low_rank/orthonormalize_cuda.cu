#include "compress/kernels/low_rank/orthonormalize.h"
#include "core/cuda/batch.h"
#include "core/cuda/device.h"

// A block for each matrix, which it transposes first, so that columns are rows in memory. Blocked:
// a column's products with all finished ones are made at once, a warp for each, and then taken out
// of it, twice (once leaves rounding errors as large as what was taken, twice leaves none: Giraud,
// Langou, Rozloznik 2005), and twice more where little of it was left. Modified: a finished column
// is taken out of each later one, a warp for each of those.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr float kMostlyGone = 1e-2F;  // of a column's length: what is left has errors that count

struct Item {
  float* matrix;   // (n, r)
  float* columns;  // (r, n), scratch
  std::int64_t n;
  int r;
};

// One block's matrix, its columns as rows. Every thread calls every function.
class Columns {
 public:
  __device__ explicit Columns(const Item& item)
      : item_(&item), n_(item.n), shared_(dynamic_shared<float>()) {}

  [[nodiscard]] __device__ float* column(int k) const { return item_->columns + k * n_; }

  __device__ float block_sum_of_squares(const float* x) {
    float sum = 0.0F;
    for (std::int64_t i = threadIdx.x; i < n_; i += kThreads) {
      sum = fmaf(x[i], x[i], sum);
    }
    sum = block_sum(sum, shared_);
    __syncthreads();
    return sum;
  }

  __device__ float length_of(int k) { return sqrtf(block_sum_of_squares(column(k))); }

  // To length 1, or to zero where next to nothing of the column is left.
  __device__ void normalize(int k, float least) {
    const float left = length_of(k);
    const float factor = left <= least ? 0.0F : 1.0F / left;
    for (std::int64_t i = threadIdx.x; i < n_; i += kThreads) {
      column(k)[i] *= factor;
    }
    __syncthreads();
  }

  // All columns before k out of column k.
  __device__ void take_out_finished(int k) {
    for (int j = static_cast<int>(threadIdx.x / kWarp); j < k; j += static_cast<int>(kWarps)) {
      const float share = warp_dot(column(j), column(k));
      if (threadIdx.x % kWarp == 0) {
        shares()[j] = share;
      }
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < n_; i += kThreads) {
      float value = column(k)[i];
      for (int j = 0; j < k; ++j) {
        value = fmaf(-shares()[j], column(j)[i], value);
      }
      column(k)[i] = value;
    }
    __syncthreads();
  }

  // Column k out of all later ones.
  __device__ void take_out_of_later(int k) {
    for (int j = k + 1 + static_cast<int>(threadIdx.x / kWarp); j < item_->r;
         j += static_cast<int>(kWarps)) {
      const float share = warp_dot(column(k), column(j));
      for (std::int64_t i = threadIdx.x % kWarp; i < n_; i += kWarp) {
        column(j)[i] = fmaf(-share, column(k)[i], column(j)[i]);
      }
    }
    __syncthreads();
  }

  // factor * matrix, transposed.
  __device__ void bring(float factor) {
    for (std::int64_t i = threadIdx.x; i < n_ * item_->r; i += kThreads) {
      column(static_cast<int>(i % item_->r))[i / item_->r] = factor * item_->matrix[i];
    }
    __syncthreads();
  }

  __device__ void write() const {
    for (std::int64_t i = threadIdx.x; i < n_ * item_->r; i += kThreads) {
      item_->matrix[i] = column(static_cast<int>(i % item_->r))[i / item_->r];
    }
  }

  // The power of two that brings the largest element to [1, 2); 0 for all zeros, NaN where an
  // element is not finite.
  __device__ float scale() {
    float largest = 0.0F;
    float strange = 0.0F;
    for (std::int64_t i = threadIdx.x; i < n_ * item_->r; i += kThreads) {
      const float value = fabsf(item_->matrix[i]);
      largest = fmaxf(largest, value);
      strange = value < INFINITY ? strange : 1.0F;  // not a NaN either
    }
    largest = block_max(largest, shared_);
    strange = block_max(strange, shared_);
    __syncthreads();
    if (strange != 0.0F) {
      return NAN;
    }
    const int exponent = largest == 0.0F ? 0 : -ilogbf(largest);
    return largest == 0.0F ? 0.0F : ldexpf(1.0F, std::clamp(exponent, -126, 126));
  }

  __device__ void fill(float value) const {
    for (std::int64_t i = threadIdx.x; i < n_ * item_->r; i += kThreads) {
      item_->matrix[i] = value;
    }
  }

 private:
  [[nodiscard]] __device__ float* shares() const { return shared_ + kWarps; }

  [[nodiscard]] __device__ float warp_dot(const float* a, const float* b) const {
    float sum = 0.0F;
    for (std::int64_t i = threadIdx.x % kWarp; i < n_; i += kWarp) {
      sum = fmaf(a[i], b[i], sum);
    }
    return warp_sum(sum);
  }

  const Item* item_;
  std::int64_t n_;
  float* shared_;  // a float for each warp, then one for each column
};

// Compiled loops over shares read whole packs of them.
constexpr std::size_t shared_floats(int columns) {
  constexpr std::size_t kPack = 4;
  return kWarps + (static_cast<std::size_t>(columns) + kPack - 1) / kPack * kPack;
}

__global__ void __launch_bounds__(kThreads)
    orthonormalize_kernel(const __grid_constant__ Batch<Item> batch, Orthogonalization method) {
  const Item& item = batch.items[blockIdx.x];
  Columns columns(item);
  const float factor = columns.scale();
  if (factor != factor) {
    columns.fill(factor);
    return;
  }
  columns.bring(factor);
  const float share = least_share_left(method);
  if (method == Orthogonalization::gram_schmidt) {
    float* const given = dynamic_shared<float>() + kWarps;  // no shares are kept there
    for (int k = 0; k < item.r; ++k) {
      const float length = columns.length_of(k);
      if (threadIdx.x == 0) {
        given[k] = length;
      }
    }
    __syncthreads();
    for (int k = 0; k < item.r; ++k) {
      columns.normalize(k, share * given[k]);
      columns.take_out_of_later(k);
    }
  } else {
    for (int k = 0; k < item.r; ++k) {
      const float given = columns.length_of(k);
      columns.take_out_finished(k);
      columns.take_out_finished(k);
      if (columns.length_of(k) < kMostlyGone * given) {
        columns.take_out_finished(k);
        columns.take_out_finished(k);
      }
      columns.normalize(k, share * given);
    }
  }
  columns.write();
}

}  // namespace

void orthonormalize(StreamView stream, std::span<const Tensor> matrices, Orthogonalization method) {
  ArenaScope scratch(stream.workspace());
  std::vector<Item> items;
  int most_columns = 0;
  for (const Tensor& matrix : matrices) {
    if (matrix.num_elements() > 0) {
      items.push_back({.matrix = matrix.data<float>(),
                       .columns = scratch.allocate(DType::f32, matrix.shape()).data<float>(),
                       .n = matrix.dim(0),
                       .r = static_cast<int>(matrix.dim(1))});
      most_columns = std::max(most_columns, items.back().r);
    }
  }
  const std::size_t shared = shared_floats(most_columns) * sizeof(float);
  const auto one_block = [](const Item& /*item*/) { return 1U; };
  for_each_batch(items, one_block, [&](const Batch<Item>& batch, unsigned blocks) {
    launch(stream,
           {.grid = blocks, .block = kThreads, .shared_bytes = shared},
           orthonormalize_kernel,
           batch,
           method);
  });
}

std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices) {
  std::size_t bytes = 0;
  for (const Tensor& matrix : matrices) {
    bytes += matrix.num_elements() == 0 ? 0 : Arena::aligned_bytes(DType::f32, matrix.shape());
  }
  return bytes;
}

}  // namespace slackline::cuda
