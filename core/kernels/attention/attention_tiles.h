#pragma once

#include <cstdint>
#include <string>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"
#include "core/error.h"
#include "core/kernels/attention/attention_job.h"

// Tiles of attention kernels on the CUDA device, in fp32.
//
// A block of 16 x 16 threads makes a tile of scores at a time, tile x tile of them; a thread has
// R x R, of neighbouring rows and columns. Rows of queries, keys and values stand in shared memory
// with four floats between them, and rows that are a tile's columns are dealt out by 16, so that
// the lanes of a warp read different banks.
namespace slackline::cuda {

inline constexpr int kSide = 16;  // of a block's square of threads
inline constexpr int kThreads = kSide * kSide;
inline constexpr int kGap = 4;  // floats between rows
inline constexpr int kPack = 4;

template <int tile>
struct Tiles {
  static constexpr int R = tile / kSide;       // rows and columns of a thread
  static constexpr int kStride = tile + kGap;  // of a tile of scores

  // Where row r of a tile stands that is read by columns: thread tx has rows R tx .. R tx + R - 1.
  static __device__ int column_slot(int r) { return r % R * kSide + r / R; }
};

// Columns of a head, as they stand in shared memory: whole packs, and zero beyond D. An even number
// of packs beside the gap of one spreads rows over the banks.
__host__ __device__ constexpr int padded(int D) {
  return (D + 2 * kPack - 1) / (2 * kPack) * 2 * kPack;
}

__host__ __device__ constexpr int row_stride(int D) {
  return padded(D) + kGap;
}

enum class Order { rows, columns };

// Brings rows [first, first + tile) of a head to shared memory as floats; zero beyond T and D.
template <int tile, Order order, typename T>
__device__ void bring(
    const AttentionJob& job, const T* from, std::int64_t stride, int first, float* to) {
  const int columns = padded(job.D);
  const int lane = static_cast<int>(threadIdx.y) * kSide + static_cast<int>(threadIdx.x);
  for (int i = lane; i < tile * columns; i += kThreads) {
    const int r = i / columns;
    const int d = i % columns;
    const bool is_there = first + r < job.T && d < job.D;
    const int slot = order == Order::rows ? r : Tiles<tile>::column_slot(r);
    to[slot * row_stride(job.D) + d] =
        is_there ? to_float(from[static_cast<std::int64_t>(first + r) * stride + d]) : 0.0F;
  }
}

// sums[i][j] += row R ty + i of `rows` times row R tx + j of `columns`, over D.
template <int tile>
__device__ void multiply_rows(const AttentionJob& job,
                              const float* rows,
                              const float* columns,
                              float (&sums)[Tiles<tile>::R][Tiles<tile>::R]) {
  constexpr int R = Tiles<tile>::R;
  const int stride = row_stride(job.D);
  const float* const a = rows + static_cast<int>(threadIdx.y) * R * stride;
  const float* const b = columns + static_cast<int>(threadIdx.x) * stride;
  for (int d = 0; d < padded(job.D); d += kPack) {
    Floats<kPack> left[R];
    Floats<kPack> right[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      left[i] = load<kPack>(a + i * stride + d);
      right[i] = load<kPack>(b + i * kSide * stride + d);
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int j = 0; j < R; ++j) {
#pragma unroll
        for (int k = 0; k < kPack; ++k) {
          sums[i][j] = fmaf(left[i][k], right[j][k], sums[i][j]);
        }
      }
    }
  }
}

// A thread's part of a tile x D result: rows R ty + i, columns 4 tx + 64 g.
template <int R, int groups>
struct Result {
  Floats<kPack> values[R][groups];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        values[i][g] = Floats<kPack>{};
      }
    }
  }

  __device__ void scale_row(int i, float factor) {
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        values[i][g][k] *= factor;
      }
    }
  }
};

__device__ inline int first_column(int group) {
  return kPack * (static_cast<int>(threadIdx.x) + kSide * group);
}

// result += weights (tile x tile, rows of this thread) times rows of `values`, which stand in order
// of the weights' columns.
template <int tile, int groups, Order order>
__device__ void add_weighted(const AttentionJob& job,
                             const float* weights,
                             const float* values,
                             Result<Tiles<tile>::R, groups>& result) {
  constexpr int R = Tiles<tile>::R;
  constexpr int kStride = Tiles<tile>::kStride;
  const int stride = row_stride(job.D);
  const float* const own = weights + static_cast<int>(threadIdx.y) * R * kStride;
  for (int first = 0; first < tile; first += kPack) {
    Floats<kPack> weight[R];
#pragma unroll
    for (int i = 0; i < R; ++i) {
      weight[i] = load<kPack>(own + i * kStride + first);
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const int r = first + k;
      const int slot = order == Order::rows ? r : Tiles<tile>::column_slot(r);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const int column = first_column(g);
        if (column < padded(job.D)) {
          const Floats<kPack> row = load<kPack>(values + slot * stride + column);
#pragma unroll
          for (int i = 0; i < R; ++i) {
#pragma unroll
            for (int c = 0; c < kPack; ++c) {
              result.values[i][g][c] = fmaf(weight[i][k], row[c], result.values[i][g][c]);
            }
          }
        }
      }
    }
  }
}

template <int tile, int groups, typename T>
__device__ void write_rows(const AttentionJob& job,
                           const Result<Tiles<tile>::R, groups>& result,
                           int first,
                           std::int64_t stride,
                           T* to) {
#pragma unroll
  for (int i = 0; i < Tiles<tile>::R; ++i) {
    const int row = first + static_cast<int>(threadIdx.y) * Tiles<tile>::R + i;
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int k = 0; k < kPack; ++k) {
        const int column = first_column(g) + k;
        if (row < job.T && column < job.D) {
          to[static_cast<std::int64_t>(row) * stride + column] =
              from_float<T>(result.values[i][g][k]);
        }
      }
    }
  }
}

template <int tile>
LaunchShape shape_of(const AttentionJob& job, int row_tiles, int score_tiles) {
  const std::size_t floats =
      static_cast<std::size_t>(row_tiles) * tile * static_cast<std::size_t>(row_stride(job.D)) +
      static_cast<std::size_t>(score_tiles) * tile * Tiles<tile>::kStride;
  return {
      .grid =
          blocks_for(static_cast<std::size_t>(job.T), tile) * static_cast<unsigned>(job.B * job.H),
      .block = dim3(kSide, kSide),
      .shared_bytes = floats * sizeof(float),
  };
}

// A block of the device has that much shared memory: devices of one generation differ by half.
[[nodiscard]] inline bool fits_block(const LaunchShape& shape) {
  return shape.shared_bytes <= shared_bytes_of_block();
}

// Calls start(groups), of 64 columns each.
template <typename Start>
void choose_groups(const AttentionJob& job, const Start& start) {
  constexpr int kGroup = kSide * kPack;
  if (job.D <= kGroup) {
    start(Constant<1>{});
  } else if (job.D <= 2 * kGroup) {
    start(Constant<2>{});
  } else {
    static_assert(4 * kGroup == kMostHeadColumnsOfDevice);
    SL_CHECK(job.D <= 4 * kGroup, "attention heads of " + std::to_string(job.D) + " columns");
    start(Constant<4>{});
  }
}

}  // namespace slackline::cuda
