#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"

// How the kernels of the embedding take rows: a warp for each.
namespace slackline::cuda {

inline constexpr unsigned kRowsPerBlock = 8;  // a warp each

// The rows of a vocabulary that a table holds.
template <typename T>
struct TableRows {
  T* values;
  std::int64_t first_token;
  std::int64_t num_rows;

  // The row of a token; -1 where the table has none.
  __device__ std::int64_t row_of(std::int32_t token) const {
    const std::int64_t row = token - first_token;
    return row < 0 || row >= num_rows ? -1 : row;
  }
};

// The row that this warp takes.
__device__ inline std::int64_t row_of_warp() {
  return std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
}

// The launch of a kernel in which row_of_warp() passes over num_rows rows.
[[nodiscard]] inline LaunchShape warp_for_each(std::int64_t num_rows) {
  return {.grid = blocks_for(static_cast<std::size_t>(num_rows), kRowsPerBlock),
          .block = dim3(kWarp, kRowsPerBlock)};
}

}  // namespace slackline::cuda
