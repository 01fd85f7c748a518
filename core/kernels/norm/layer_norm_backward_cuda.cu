#include <algorithm>
#include <cstddef>

#include <cuda_pipeline_primitives.h>

#include "core/cuda/map.h"
#include "core/kernels/column_sums.h"
#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/norm/layer_norm_rows.h"

// With n = (x - mean) rstd and g = dy weight:
//   dx = rstd (g - mean(g) - n mean(g n)),  d_weight += dy n,  d_bias += dy.
// A thread has the same columns in every row that its block takes, so it sums d_weight and d_bias
// of these in registers, and rows arrive in shared memory; the block's sums go to scratch memory,
// row by row (column_sums.h). Rows that are too long for registers, and those that are not aligned,
// are read twice.
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

// A thread's part of a row as it lies in memory: half the registers of floats.
template <int n, int packs, typename T>
struct StoredPart {
  Pack<T, n> values[packs];

  __device__ float at(int p, int i) const { return to_float(values[p].elements[i]); }
};

// A thread gets its parts of the block's rows here, turn after turn. Rows that are wide
// enough arrive in shared memory, the next ones while one is worked on: what a multiprocessor has
// to have on the way to keep its memory busy is more than its registers hold beside the sums. A
// thread takes only what it has itself begun to copy, so nobody waits for anybody else. `rows`: of
// which all but one are on the way.
template <int n, int packs, int rows, typename T, typename Y>
class RowSource {
 public:
  static constexpr std::size_t kThreadBytes = packs * n * (2 * sizeof(T) + sizeof(Y));

  __device__ explicit RowSource(const BackwardRows<T, Y>& args) : args_(args) {}

  // Begins to copy row `index`, if there is one before `end`, for turn `turn`.
  __device__ void begin(std::int64_t index, std::int64_t end, unsigned turn) const {
    if (index < end) {
      for_each_pack<n, packs>(args_.C, [&](int p, int column) {
        const std::int64_t at = index * args_.C + column;
        copy(place<T>(turn, 0) + slot(p), args_.x + at);
        copy(place<Y>(turn, 2) + slot(p), args_.dy + at);
        if (args_.accumulate_dx) {
          copy(place<T>(turn, 1) + slot(p), args_.dx + at);
        }
      });
    }
    __pipeline_commit();
  }

  // Waits for the turn's row: `rows` - 1 have been begun since.
  __device__ void wait() const { __pipeline_wait_prior(rows - 1); }

  [[nodiscard]] __device__ StoredPart<n, packs, T> x(std::int64_t /*index*/, unsigned turn) const {
    return part(place<T>(turn, 0));
  }

  [[nodiscard]] __device__ StoredPart<n, packs, Y> dy(std::int64_t /*index*/, unsigned turn) const {
    return part(place<Y>(turn, 2));
  }

  // Zeros unless it is added to.
  [[nodiscard]] __device__ StoredPart<n, packs, T> dx(std::int64_t /*index*/, unsigned turn) const {
    return args_.accumulate_dx ? part(place<T>(turn, 1)) : StoredPart<n, packs, T>{};
  }

 private:
  [[nodiscard]] __device__ static unsigned threads() { return blockDim.x * blockDim.y; }

  // The thread's pack p lies beside its neighbours'.
  [[nodiscard]] __device__ static unsigned slot(int p) {
    return p * threads() + threadIdx.y * blockDim.x + threadIdx.x;
  }

  // Tensor 0, 1 or 2 of a turn: x, dx and dy, which may be wider.
  template <typename E>
  [[nodiscard]] __device__ static Pack<E, n>* place(unsigned turn, unsigned tensor) {
    std::byte* const own = dynamic_shared<std::byte>() + turn % rows * kThreadBytes * threads();
    return reinterpret_cast<Pack<E, n>*>(own + tensor * packs * n * sizeof(T) * threads());
  }

  template <typename E>
  __device__ static void copy(Pack<E, n>* to, const E* from) {
    __pipeline_memcpy_async(to, from, sizeof(*to));
  }

  template <typename E>
  [[nodiscard]] __device__ StoredPart<n, packs, E> part(const Pack<E, n>* from) const {
    StoredPart<n, packs, E> part{};
    for_each_pack<n, packs>(args_.C,
                            [&](int p, int /*column*/) { part.values[p] = from[slot(p)]; });
    return part;
  }

  const BackwardRows<T, Y>& args_;
};

// Rows whose elements are moved one by one, which no copy to shared memory does.
template <int packs, typename T, typename Y>
class RowSource<1, packs, 1, T, Y> {
 public:
  static constexpr std::size_t kThreadBytes = 0;

  __device__ explicit RowSource(const BackwardRows<T, Y>& args) : args_(args) {}

  __device__ void begin(std::int64_t /*index*/, std::int64_t /*end*/, unsigned /*turn*/) const {}

  __device__ void wait() const {}

  // An element is read each time it is used: registers hold the sums.
  template <typename E>
  struct InMemory {
    const E* first;  // null: zeros

    __device__ float at(int p, int /*i*/) const {
      return first == nullptr ? 0.0F : to_float(first[p * blockDim.x + threadIdx.x]);
    }
  };

  [[nodiscard]] __device__ InMemory<T> x(std::int64_t index, unsigned /*turn*/) const {
    return {args_.x + index * args_.C};
  }

  [[nodiscard]] __device__ InMemory<Y> dy(std::int64_t index, unsigned /*turn*/) const {
    return {args_.dy + index * args_.C};
  }

  [[nodiscard]] __device__ InMemory<T> dx(std::int64_t index, unsigned /*turn*/) const {
    return {args_.accumulate_dx ? args_.dx + index * args_.C : nullptr};
  }

 private:
  const BackwardRows<T, Y>& args_;
};

template <int n, int packs, int rows, typename T, typename Y>
__global__ void __launch_bounds__(RowShape::kMostThreads) backward_kernel(BackwardRows<T, Y> args) {
  const int C = args.C;
  const std::int64_t begin = std::int64_t{blockIdx.x} * args.rows_per_block;
  const std::int64_t end = std::min(args.N, begin + args.rows_per_block);
  const RowSource<n, packs, rows, T, Y> source(args);
  for (int ahead = 0; ahead + 1 < rows; ++ahead) {
    source.begin(begin + std::int64_t{blockDim.y} * ahead + threadIdx.y, end, ahead);
  }
  RowPart<n, packs> d_weight{};
  RowPart<n, packs> d_bias{};
  // All threads of the block take as many turns: there are barriers in them.
  unsigned turn = 0;
  for (std::int64_t first = begin; first < end; first += blockDim.y, ++turn) {
    const std::int64_t index = first + threadIdx.y;
    const bool is_row = index < end;
    source.begin(index + std::int64_t{blockDim.y} * (rows - 1), end, turn + rows - 1);
    const float mean = is_row ? args.mean[index] : 0.0F;
    const float rstd = is_row ? args.rstd[index] : 0.0F;
    source.wait();
    const auto x = source.x(index, turn);
    const auto dy = source.dy(index, turn);
    float sum = 0.0F;
    float sum_normal = 0.0F;
    if (is_row) {
      for_each_pack<n, packs>(C, [&](int p, int column) {
        const Floats<n> weight = load<n>(args.weight + column);
#pragma unroll
        for (int i = 0; i < n; ++i) {
          const float normal = (x.at(p, i) - mean) * rstd;
          d_weight.values[p][i] = fmaf(dy.at(p, i), normal, d_weight.values[p][i]);
          d_bias.values[p][i] += dy.at(p, i);
          const float g = dy.at(p, i) * weight[i];
          sum += g;
          sum_normal = fmaf(g, normal, sum_normal);
        }
      });
    }
    const float mean_g = block_sum(sum, row_scratch()) / static_cast<float>(C);
    const float mean_g_normal = block_sum(sum_normal, row_scratch()) / static_cast<float>(C);
    if (!is_row) {
      continue;
    }
    const auto held = source.dx(index, turn);
    for_each_pack<n, packs>(C, [&](int p, int column) {
      const Floats<n> weight = load<n>(args.weight + column);
      Floats<n> dx;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const float normal = (x.at(p, i) - mean) * rstd;
        const float g = dy.at(p, i) * weight[i];
        dx[i] = held.at(p, i) + (g - fmaf(normal, mean_g_normal, mean_g)) * rstd;
      }
      store<n>(args.dx + index * C + column, dx);
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

template <int n, int packs, int kRows, typename T, typename Y>
void start_backward(StreamView stream, const BackwardRows<T, Y>& rows, unsigned num_blocks) {
  const RowShape row(rows.C, n, packs);
  const std::size_t thread_bytes =
      std::max(n * sizeof(float), kRows * RowSource<n, packs, kRows, T, Y>::kThreadBytes);
  const LaunchShape shape{
      .grid = num_blocks,
      .block = dim3(row.threads, row.rows),
      .shared_bytes = std::size_t{row.threads} * row.rows * thread_bytes,
  };
  launch(stream, shape, backward_kernel<n, packs, kRows, T, Y>, rows);
}

// As wide as element types, rows and their pointers allow.
template <typename T, typename Y>
void start_backward(StreamView stream, const BackwardRows<T, Y>& rows, unsigned num_blocks) {
  constexpr int kPack = kPackSize<T, Y>;
  if (rows.C % kPack != 0 || !are_aligned(rows.x, rows.dy, rows.dx, rows.weight)) {
    start_backward<1, RowShape::kSingles, 1>(stream, rows, num_blocks);
  } else if (rows.C <= static_cast<int>(RowShape::kThreads) * kPack * RowShape::kPacks) {
    start_backward<kPack, RowShape::kPacks, 4>(stream, rows, num_blocks);
  } else if (rows.C <= static_cast<int>(RowShape::kMostThreads) * kPack * RowShape::kPacks) {
    start_backward<kPack, RowShape::kPacks, 2>(stream, rows, num_blocks);
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
