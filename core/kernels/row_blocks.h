#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/tensor/stream.h"

namespace slackline {

// How column sums over N rows are split: blocks of rows, summed one by one and then added in
// order. Depends on N alone.
struct RowBlocks {
  static constexpr std::size_t kMinRows = 32;    // partial sums cost one row of traffic a block
  static constexpr std::size_t kMaxBlocks = 32;  // enough for the threads of a rank

  explicit RowBlocks(std::int64_t N)
      : num_rows(static_cast<std::size_t>(N)),
        rows_per_block(std::max(kMinRows, (num_rows + kMaxBlocks - 1) / kMaxBlocks)),
        num_blocks((num_rows + rows_per_block - 1) / rows_per_block) {}

  [[nodiscard]] std::size_t begin(std::size_t block) const { return block * rows_per_block; }

  [[nodiscard]] std::size_t end(std::size_t block) const {
    return std::min(num_rows, begin(block) + rows_per_block);
  }

  std::size_t num_rows;
  std::size_t rows_per_block;
  std::size_t num_blocks;
};

// total[c] += partials[0][c] + partials[1][c] + ..., blocks in order. `stride` is the distance of
// two blocks' partials in elements.
inline void add_partials(StreamView stream,
                         const RowBlocks& blocks,
                         const float* partials,
                         std::size_t stride,
                         std::span<float> total) {
  constexpr std::size_t kColumnsPerTask = 1024;
  parallel_ranges(stream, total.size(), kColumnsPerTask, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector(end - begin, [&](std::size_t i, auto part) {
      const std::size_t column = begin + i;
      simd::Floats sum = simd::zero();
      for (std::size_t block = 0; block < blocks.num_blocks; ++block) {
        sum = simd::hn::Add(sum, simd::load(partials + block * stride + column, part));
      }
      float* to = total.data() + column;
      simd::store(simd::hn::Add(simd::load(to, part), sum), to, part);
    });
  });
}

}  // namespace slackline
