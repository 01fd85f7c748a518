#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>

#include "core/kernels/matmul/gemm_background.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "core/kernels/matmul/matmul_epilogue.h"
#include "core/kernels/matmul/matmul_grid.h"

// C = A B in blocks, so that what is multiplied stays in the second-level cache:
//
//   for each group of A, rows x sums:
//     pack it into strips of kRows rows, all threads together
//     tasks, each a range of C's columns and of the group's rows:
//       for each block of at most 1024 sums:
//         multiply every strip by every panel of B's packed block
//
// B is packed once a group. A thread claims its next task early and packs the next block while it
// multiplies the present one: with the few hundred rows of a micro-batch, B comes from memory for
// only as many multiplications a byte, and waiting for it would cost more than a tenth.
// Sums that run over several blocks gather in C where C is f32, else in scratch.
// Every size follows from M, N and K alone (matmul_grid.h).
namespace slackline::cpu {

namespace {

using gemm::kColumns;
using gemm::kRows;

// When packing A; measured. A run is of whole rows, a slice of a transposed A.
constexpr std::size_t kRunRows = 4 * kRows;
constexpr std::size_t kSliceRows = 256;
constexpr std::size_t kSlice = 16;
// The first block of B is packed without tiles beside it, in as many slices.
constexpr std::size_t kTilesWithout = 64;

// Row-major f32 is not packed, but for rows that do not fill a strip.
bool is_in_place(const MatmulArgs& args) {
  return args.a.dtype() == DType::f32 && args.transpose_a == Transpose::no;
}

std::size_t strip_elements(const MatmulArgs& args, const MatmulGrid& grid) {
  return (is_in_place(args) ? kRows : grid.group_rows) * grid.group_depth;
}

// One call: the operands, C and scratch.
template <typename T>
class Product {
 public:
  Product(StreamView stream, const MatmulArgs& args)
      : pool_(stream.pool()),
        grid_(shape_of(args)),
        a_{args.a.data<T>(),
           static_cast<std::size_t>(args.a_row()),
           args.transpose_a == Transpose::yes ? gemm::Order::k_rows : gemm::Order::j_rows},
        b_{args.b.data<T>(),
           static_cast<std::size_t>(args.b.dim(1)),
           args.transpose_b == Transpose::yes ? gemm::Order::j_rows : gemm::Order::k_rows},
        a_in_place_(is_in_place(args) ? static_cast<const float*>(args.a.raw()) : nullptr),
        accumulate_(args.accumulate),
        epilogue_(args),
        scratch_(stream.workspace()) {
    strips_ = allocate(strip_elements(args, grid_));
    panels_ = allocate(2 * grid_.block_elements() * static_cast<std::size_t>(pool_.num_threads()));
    if (args.c.dtype() == DType::f32) {
      sums_ = args.c.data<float>();
      sums_row_ = static_cast<std::size_t>(args.c_row());
    } else if (!grid_.is_one_block()) {
      sums_ = allocate(grid_.M * grid_.N);
      sums_row_ = grid_.N;
    }
  }

  void run() {
    for (group_row_ = 0; group_row_ < grid_.M; group_row_ += grid_.group_rows) {
      rows_ = std::min(grid_.group_rows, grid_.M - group_row_);
      for (group_k_ = 0; group_k_ < grid_.K; group_k_ += grid_.group_depth) {
        group_k_end_ = std::min(grid_.K, group_k_ + grid_.group_depth);
        pack_strips();
        num_tasks_ = num_blocks(grid_.N, grid_.task_columns) * num_blocks(rows_, grid_.task_rows);
        next_task_ = 0;
        const auto workers = static_cast<std::size_t>(pool_.num_threads());
        pool_.parallel_for(workers, [&](std::size_t, int thread) { run_tasks(thread); });
      }
    }
  }

 private:
  // Rows of the group and columns of C that a task computes.
  struct Range {
    std::size_t row, row_end;
    std::size_t column, column_end;
  };

  float* allocate(std::size_t elements) {
    return scratch_.allocate(DType::f32, Shape{static_cast<std::int64_t>(elements)})
        .template data<float>();
  }

  [[nodiscard]] std::size_t depth_at(std::size_t k) const {
    return std::min(grid_.depth, grid_.K - k);
  }

  // The first row of the group that is packed; those before it are multiplied in place.
  [[nodiscard]] std::size_t first_packed() const {
    return a_in_place_ == nullptr ? 0 : rows_ / kRows * kRows;
  }

  // Blocks of packed rows stand `depth` times their number apart.
  [[nodiscard]] float* strip(std::size_t row, std::size_t k) const {
    const std::size_t packed_rows = rounded_up(rows_ - first_packed(), kRows);
    return strips_ + (k - group_k_) * packed_rows + (row - first_packed()) * depth_at(k);
  }

  [[nodiscard]] Range range_of(std::size_t task) const {
    const std::size_t row_ranges = num_blocks(rows_, grid_.task_rows);
    const std::size_t row = task % row_ranges * grid_.task_rows;
    const std::size_t column = task / row_ranges * grid_.task_columns;
    return {row,
            std::min(rows_, row + grid_.task_rows),
            column,
            std::min(grid_.N, column + grid_.task_columns)};
  }

  // Row-major A is read in long runs, a strip at a time. A transposed A is read a slice of k of
  // many strips at a time, so that all of them take their part of a line while it is in cache.
  void pack_strips() {
    const bool is_transposed = a_.order == gemm::Order::k_rows;
    const std::size_t rows_per_task = is_transposed ? kSliceRows : kRunRows;
    const std::size_t k_per_task = is_transposed ? MatmulGrid::kDepthUnit : grid_.depth;
    const std::size_t row_tasks = num_blocks(rows_ - first_packed(), rows_per_task);
    const std::size_t k_tasks = num_blocks(group_k_end_ - group_k_, k_per_task);
    pool_.parallel_for(row_tasks * k_tasks, [&](std::size_t task, int) {
      const std::size_t row = first_packed() + task % row_tasks * rows_per_task;
      const std::size_t row_end = std::min(rows_, row + rows_per_task);
      const std::size_t k = group_k_ + task / row_tasks * k_per_task;
      const std::size_t k_end = std::min(group_k_end_, k + k_per_task);
      const std::size_t step = is_transposed ? kSlice : k_per_task;
      for (std::size_t slice = k; slice < k_end; slice += step) {
        pack_slice(row, row_end, slice, std::min(k_end, slice + step));
      }
    });
  }

  void pack_slice(std::size_t row, std::size_t row_end, std::size_t k, std::size_t k_end) {
    const std::size_t block = group_k_ + (k - group_k_) / grid_.depth * grid_.depth;
    for (; row < row_end; row += kRows) {
      gemm::pack<kRows>(a_.from_element(k, group_row_ + row),
                        k_end - k,
                        std::min(kRows, row_end - row),
                        strip(row, block) + (k - block) * kRows);
    }
  }

  // What is multiplied at once: a task's block of sums, from k on.
  struct Block {
    Range range;
    std::size_t k;
  };

  [[nodiscard]] std::optional<Block> claim_task() {
    const std::size_t task = next_task_++;
    return task < num_tasks_ ? std::optional(Block{range_of(task), group_k_}) : std::nullopt;
  }

  [[nodiscard]] std::optional<Block> following(const Block& block) {
    const std::size_t k = block.k + grid_.depth;
    return k < group_k_end_ ? std::optional(Block{block.range, k}) : claim_task();
  }

  void run_tasks(int thread) {
    b_.order == gemm::Order::k_rows ? run_tasks<gemm::PanelCopy<T>>(thread)
                                    : run_tasks<gemm::PanelTransposition<T>>(thread);
  }

  // Runs tasks until none is left. Packer is a background of gemm_background.h.
  template <typename Packer>
  void run_tasks(int thread) {
    float* present = panels_ + 2 * static_cast<std::size_t>(thread) * grid_.block_elements();
    float* coming = present + grid_.block_elements();
    std::optional<Block> block = claim_task();
    if (block) {
      Packer packer(whole_panels(*block, present), kTilesWithout);
      packer.finish();
      pack_edge(*block, present);
    }
    while (block) {
      const std::optional<Block> next = following(*block);
      if (next) {
        Packer packer(whole_panels(*next, coming), num_tiles(block->range));
        multiply_block(*block, present, packer);
        packer.finish();
        pack_edge(*next, coming);
      } else {
        gemm::NoBackground none;
        multiply_block(*block, present, none);
      }
      block = next;
      std::swap(present, coming);
    }
  }

  [[nodiscard]] static std::size_t num_tiles(const Range& range) {
    return num_blocks(range.row_end - range.row, kRows) *
           num_blocks(range.column_end - range.column, kColumns);
  }

  [[nodiscard]] gemm::PanelsToPack<T> whole_panels(const Block& block, float* to) const {
    return {.source = b_.from_element(block.k, block.range.column),
            .K = depth_at(block.k),
            .panels = (block.range.column_end - block.range.column) / kColumns,
            .to = to};
  }

  // Packs the block's last panel, where C ends within it.
  void pack_edge(const Block& block, float* panels) {
    const std::size_t columns = block.range.column_end - block.range.column;
    const std::size_t whole = columns / kColumns * kColumns;
    if (whole < columns) {
      gemm::pack<kColumns>(b_.from_element(block.k, block.range.column + whole),
                           depth_at(block.k),
                           columns - whole,
                           panels + whole * depth_at(block.k));
    }
  }

  template <typename Background>
  void multiply_block(const Block& block, const float* panels, Background& background) {
    const Range& range = block.range;
    for (std::size_t row = range.row; row < range.row_end; row += kRows) {
      for (std::size_t column = range.column; column < range.column_end; column += kColumns) {
        const float* panel = panels + (column - range.column) * depth_at(block.k);
        background.before_tile();
        multiply_one({.row = row, .column = column, .k = block.k}, panel, background);
        background.after_tile();
      }
    }
  }

  // Where a tile begins: row of the group, column of C, first summand.
  struct Place {
    std::size_t row, column, k;
  };

  template <typename Background>
  void multiply_one(const Place& at, const float* panel, Background& background) {
    const std::size_t row = group_row_ + at.row;
    const std::size_t rows = std::min(kRows, grid_.M - row);
    const std::size_t columns = std::min(kColumns, grid_.N - at.column);
    const bool starts_here = at.k == 0 && accumulate_ == Accumulate::no;
    float* to = sums_ == nullptr ? nullptr : sums_ + row * sums_row_ + at.column;
    const bool is_whole = to != nullptr && rows == kRows && columns == kColumns;
    alignas(64) float edge[kRows * kColumns];
    const bool in_place = at.row < first_packed();
    gemm::Tile tile{.strip = in_place ? a_in_place_ + row * a_.stride + at.k : strip(at.row, at.k),
                    .strip_stride = in_place ? a_.stride : 0,
                    .panel = panel,
                    .K = depth_at(at.k),
                    .c = is_whole ? to : edge,
                    .c_stride = is_whole ? sums_row_ : kColumns,
                    .init = is_whole && !starts_here ? gemm::Init::add : gemm::Init::zero,
                    .vectors = gemm::vectors_for(columns)};
    gemm::multiply_tile(tile, background);
    if (!is_whole && to != nullptr) {
      add_edge(edge, {rows, columns}, to, starts_here);
      tile.c = to;
      tile.c_stride = sums_row_;
    }
    if (at.k + tile.K == grid_.K && epilogue_.is_needed()) {
      epilogue_.apply({.row = row,
                       .column = at.column,
                       .rows = rows,
                       .columns = columns,
                       .sums = tile.c,
                       .stride = tile.c_stride});
    }
  }

  struct EdgeSize {
    std::size_t rows, columns;
  };

  void add_edge(const float* edge, const EdgeSize& size, float* to, bool starts_here) const {
    for (std::size_t i = 0; i < size.rows; ++i) {
      for (std::size_t j = 0; j < size.columns; ++j) {
        const float held = starts_here ? 0.0F : to[i * sums_row_ + j];
        to[i * sums_row_ + j] = held + edge[i * kColumns + j];
      }
    }
  }

  ThreadPool& pool_;
  MatmulGrid grid_;
  gemm::Source<T> a_;
  gemm::Source<T> b_;
  const float* a_in_place_;  // null where A is packed
  Accumulate accumulate_;
  MatmulEpilogue epilogue_;
  ArenaScope scratch_;
  float* strips_ = nullptr;
  float* panels_ = nullptr;
  float* sums_ = nullptr;     // (M, N): C or scratch; null where each tile is finished at once
  std::size_t sums_row_ = 0;  // elements from one row of them to the next
  std::size_t group_row_ = 0;
  std::size_t rows_ = 0;
  std::size_t group_k_ = 0;
  std::size_t group_k_end_ = 0;
  std::size_t num_tasks_ = 0;  // of the group
  std::atomic<std::size_t> next_task_{0};
};

}  // namespace

template <typename T>
void matmul_in_f32(StreamView stream, const MatmulArgs& args) {
  Product<T>(stream, args).run();
}

std::size_t matmul_in_f32_workspace_bytes(const MatmulArgs& args, int num_threads) {
  const MatmulGrid grid(shape_of(args));
  const auto bytes = [](std::size_t elements) {
    return Arena::aligned_bytes(DType::f32, Shape{static_cast<std::int64_t>(elements)});
  };
  const bool needs_sums = args.c.dtype() != DType::f32 && !grid.is_one_block();
  return bytes(strip_elements(args, grid)) +
         bytes(2 * grid.block_elements() * static_cast<std::size_t>(num_threads)) +
         (needs_sums ? bytes(grid.M * grid.N) : 0);
}

template void matmul_in_f32<float>(StreamView, const MatmulArgs&);
template void matmul_in_f32<BFloat16>(StreamView, const MatmulArgs&);

}  // namespace slackline::cpu
