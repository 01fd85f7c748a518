#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "core/cuda/device.h"

// The kernels of layer norm hold rows so: one or more warps have a row between them, and it is
// read once: thread t of a row has packs t, t + threads, ... of n neighbours. Small rows share a
// block.
namespace slackline::cuda {

// How rows of C elements are spread over threads, `packs` packs of `pack` elements in each.
struct RowShape {
  static constexpr unsigned kThreads = 128;  // of a block, where rows are not longer than it holds
  static constexpr unsigned kMostThreads = 256;
  static constexpr int kPacks = 4;     // that a thread holds
  static constexpr int kSingles = 32;  // elements that it holds of rows that are not aligned

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

// This thread's part of a row.
template <int n, int packs>
struct RowPart {
  Floats<n> values[packs];
};

// Calls f(p, column) for each pack p of this thread that lies in the row; `column` is its first.
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

// The shared memory that block_sum() needs for this thread's row.
__device__ inline float* row_scratch() {
  __shared__ float scratch[RowShape::kMostThreads / kWarp];
  return scratch + threadIdx.y * (blockDim.x / kWarp);
}

}  // namespace slackline::cuda
