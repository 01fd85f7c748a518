#pragma once

#include <algorithm>
#include <cstddef>

#include "core/kernels/matmul/gemm_tile.h"
#include "core/kernels/matmul/matmul_backends.h"

namespace slackline {

[[nodiscard]] constexpr std::size_t num_blocks(std::size_t count, std::size_t size) {
  return (count + size - 1) / size;
}

[[nodiscard]] constexpr std::size_t rounded_up(std::size_t count, std::size_t multiple) {
  return num_blocks(count, multiple) * multiple;
}

// How a product in fp32 is cut into groups, blocks and tasks (matmul_cpu.cpp defines the words):
// by its shape alone, so that any number of threads gives the same bits. Sizes suit a
// second-level cache of 1 to 2 MiB; measured, and flat within a factor of two.
struct MatmulGrid {
  explicit MatmulGrid(const MatmulShape& shape)
      : M(shape.M),
        N(shape.N),
        K(shape.K),
        depth(rounded_up(num_blocks(K, num_blocks(K, kBlockDepth)), kDepthUnit)),
        group_rows(std::min(rounded_up(M, gemm::kRows), kGroupRows)),
        group_depth(std::min(rounded_up(K, depth),
                             std::max(depth, kGroupElements / group_rows / depth * depth))),
        task_rows(std::min(group_rows, kTaskRows)),
        task_columns(task_panels(N, depth) * gemm::kColumns) {}

  [[nodiscard]] bool is_one_block() const { return K <= depth; }

  [[nodiscard]] std::size_t block_elements() const { return depth * task_columns; }

  static constexpr std::size_t kDepthUnit = 64;

  std::size_t M, N, K;
  std::size_t depth;        // sums of a block, a multiple of kDepthUnit
  std::size_t group_rows;   // of A packed at once, whole strips
  std::size_t group_depth;  // whole blocks
  std::size_t task_rows;
  std::size_t task_columns;  // whole panels

 private:
  static constexpr std::size_t kBlockDepth = 1024;
  // Two packed blocks of B, the present and the next, and most of A's group fit the cache.
  static constexpr std::size_t kBlockElements = std::size_t{96} << 10U;
  // Packed A, shared by the threads: 4 MiB.
  static constexpr std::size_t kGroupElements = std::size_t{1} << 20U;
  static constexpr std::size_t kGroupRows = 1024;
  // Enough multiplications for each packed element of B.
  static constexpr std::size_t kTaskRows = 512;
  // Aimed at: divides evenly among two to eight threads.
  static constexpr std::size_t kTasks = 16;

  static constexpr std::size_t task_panels(std::size_t N, std::size_t depth) {
    const std::size_t for_tasks = num_blocks(N, gemm::kColumns) / kTasks;
    const std::size_t for_cache = kBlockElements / (depth * gemm::kColumns);
    return std::max(std::size_t{1}, std::min(for_tasks, for_cache));
  }
};

}  // namespace slackline
