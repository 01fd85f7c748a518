#include <algorithm>

#include "core/cuda/map.h"
#include "core/kernels/embedding/embedding.h"
#include "core/kernels/embedding/table_rows.h"

// Reads dy twice, once for each table, and reads and writes the rows of tokens that occur. Where
// each token occurs is put into lists by kernels that count and compare integers; then a warp takes
// some columns of a token's list, in order. Where in memory a list lies, and when a token has its
// turn, may differ from run to run; no sum depends on it.
namespace slackline::cuda {

namespace {

constexpr int kColumns = 2;      // that a thread sums
constexpr int kRowsAtOnce = 16;  // that it has on the way
constexpr unsigned kMostRunBlocks = 256;
constexpr unsigned kMostPositionBlocks = 32768;  // a grid has 65535 of them beside each other

// Where a token occurs: elements begin .. end - 1 of Lists::ordered.
struct Run {
  std::int32_t row;  // of the table
  std::int32_t begin;
  std::int32_t end;
};

// Scratch of embedding_backward: N tokens, V rows of the table.
struct Lists {
  Lists(Arena& arena, std::int64_t N, std::int64_t V)
      : counters(arena.allocate(DType::i32, {kFirstCount + V}).data<std::int32_t>()),
        ends(arena.allocate(DType::i32, {V}).data<std::int32_t>()),
        unordered(arena.allocate(DType::i32, {N}).data<std::int32_t>()),
        ordered(arena.allocate(DType::i32, {N}).data<std::int32_t>()),
        runs(reinterpret_cast<Run*>(
            arena.allocate(DType::i32, {std::min(N, V), kRunWords}).data<std::int32_t>())) {}

  static constexpr std::int64_t kFirstCount = 2;
  static constexpr std::int64_t kRunWords = sizeof(Run) / sizeof(std::int32_t);

  // Counts the places of the lists that rows have taken.
  __device__ std::int32_t* num_places() const { return counters; }

  __device__ std::int32_t* num_runs() const { return counters + 1; }

  // How often a row's token occurs.
  __device__ std::int32_t* count_of(std::int64_t row) const { return counters + kFirstCount + row; }

  std::int32_t* counters;   // zero at first
  std::int32_t* ends;       // of each row's list; its begin, before it is filled
  std::int32_t* unordered;  // the lists in any order
  std::int32_t* ordered;    // ascending
  Run* runs;                // of rows that occur, in any order
};

struct Tokens {
  const std::int32_t* values;
  std::int32_t count;
  TableRows<float> table;
};

__device__ inline std::int32_t index_of_thread() {
  return static_cast<std::int32_t>(blockIdx.x * kMapThreads + threadIdx.x);
}

__global__ void __launch_bounds__(kMapThreads) count_kernel(Tokens tokens, Lists lists) {
  const std::int32_t index = index_of_thread();
  const std::int64_t row = index < tokens.count ? tokens.table.row_of(tokens.values[index]) : -1;
  if (row >= 0) {
    atomicAdd(lists.count_of(row), 1);
  }
}

// Gives each row as many places as it counts.
__global__ void __launch_bounds__(kMapThreads)
    take_places_kernel(std::int64_t num_rows, Lists lists) {
  __shared__ std::int32_t of_warp[kMapThreads / kWarp];
  __shared__ std::int32_t first_of_block;
  const std::int32_t row = index_of_thread();
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const std::int32_t count = row < num_rows ? *lists.count_of(row) : 0;
  std::int32_t end = warp_sum_so_far(count);
  if (lane == kWarp - 1) {
    of_warp[warp] = end;
  }
  __syncthreads();
  for (unsigned other = 0; other < warp; ++other) {
    end += of_warp[other];
  }
  if (threadIdx.x == kMapThreads - 1) {
    first_of_block = atomicAdd(lists.num_places(), end);
  }
  __syncthreads();
  if (row < num_rows) {
    lists.ends[row] = first_of_block + end - count;
  }
}

__global__ void __launch_bounds__(kMapThreads) fill_lists_kernel(Tokens tokens, Lists lists) {
  const std::int32_t index = index_of_thread();
  const std::int64_t row = index < tokens.count ? tokens.table.row_of(tokens.values[index]) : -1;
  if (row >= 0) {
    lists.unordered[atomicAdd(&lists.ends[row], 1)] = index;
  }
}

// A warp for each token: its place is the number of smaller ones in its list.
__global__ void __launch_bounds__(kWarp* kRowsPerBlock) order_kernel(Tokens tokens, Lists lists) {
  const auto index = static_cast<std::int32_t>(row_of_warp());
  const std::int64_t row = index < tokens.count ? tokens.table.row_of(tokens.values[index]) : -1;
  if (row < 0) {
    return;
  }
  const std::int32_t end = lists.ends[row];
  const std::int32_t begin = end - *lists.count_of(row);
  unsigned smaller = 0;
  for (std::int32_t i = begin + static_cast<std::int32_t>(threadIdx.x); i < end;
       i += static_cast<std::int32_t>(kWarp)) {
    smaller += lists.unordered[i] < index ? 1U : 0U;
  }
  smaller = __reduce_add_sync(kAllLanes, smaller);
  if (threadIdx.x == 0) {
    lists.ordered[begin + static_cast<std::int32_t>(smaller)] = index;
    if (smaller == 0) {
      lists.runs[atomicAdd(lists.num_runs(), 1)] = {static_cast<std::int32_t>(row), begin, end};
    }
  }
}

// sum += rows row_of(first), row_of(first + 1), ... of `from`, in this order: kRowsAtOnce of them,
// or up to row_of(count - 1).
template <bool all, int n, typename T, typename RowOf>
__device__ void add_some_rows(const T* from,
                              std::int64_t C,
                              const RowOf& row_of,
                              std::int32_t first,
                              std::int32_t count,
                              Floats<n>& sum) {
  std::int32_t at[kRowsAtOnce];
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    at[k] = row_of(all ? first + k : std::min(first + k, count - 1));
  }
  Floats<n> rows[kRowsAtOnce];
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    rows[k] = all || first + k < count ? load<n>(from + at[k] * C) : Floats<n>{};
  }
#pragma unroll
  for (int k = 0; k < kRowsAtOnce; ++k) {
    if (all || first + k < count) {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        sum[i] += rows[k][i];
      }
    }
  }
}

// to += rows row_of(0), row_of(1), ... row_of(count - 1) of `from`, in this order.
template <int n, typename T, typename RowOf>
__device__ void add_rows(
    const T* from, std::int64_t C, std::int32_t count, const RowOf& row_of, float* to) {
  Floats<n> sum = load<n>(to);
  std::int32_t first = 0;
  for (; first + kRowsAtOnce <= count; first += kRowsAtOnce) {
    add_some_rows<true>(from, C, row_of, first, count, sum);
  }
  if (first < count) {
    add_some_rows<false>(from, C, row_of, first, count, sum);
  }
  store<n>(to, sum);
}

// The first column of this thread: blockIdx.x counts strips of columns.
template <int n>
__device__ std::int64_t first_column() {
  return (std::int64_t{blockIdx.x} * kWarp + threadIdx.x) * n;
}

template <int n, typename T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock)
    add_tokens_kernel(Lists lists, const T* dy, std::int64_t C, float* table) {
  const std::int64_t column = first_column<n>();
  if (column >= C) {
    return;
  }
  const std::int32_t num_runs = *lists.num_runs();
  for (unsigned i = blockIdx.y * kRowsPerBlock + threadIdx.y; i < static_cast<unsigned>(num_runs);
       i += gridDim.y * kRowsPerBlock) {
    const Run run = lists.runs[i];
    const std::int32_t* const places = lists.ordered + run.begin;
    add_rows<n>(
        dy + column,
        C,
        run.end - run.begin,
        [places](std::int32_t k) { return places[k]; },
        table + run.row * C + column);
  }
}

template <int n, typename T>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock) add_to_positions_kernel(
    std::int32_t B, std::int32_t num_positions, const T* dy, std::int64_t C, float* table) {
  const std::int64_t column = first_column<n>();
  std::int64_t position = std::int64_t{blockIdx.y} * kRowsPerBlock + threadIdx.y;
  for (; column < C && position < num_positions;
       position += std::int64_t{gridDim.y} * kRowsPerBlock) {
    add_rows<n>(
        dy + position * C + column,
        C,
        B,
        [num_positions](std::int32_t b) { return b * num_positions; },
        table + position * C + column);
  }
}

LaunchShape thread_for_each(std::int64_t count) {
  return {.grid = blocks_for(static_cast<std::size_t>(count), kMapThreads), .block = kMapThreads};
}

void make_lists(StreamView stream, const Tokens& tokens, const Lists& lists) {
  const auto num_counters = static_cast<std::size_t>(Lists::kFirstCount + tokens.table.num_rows);
  SL_CUDA_CHECK(cudaMemsetAsync(
      lists.counters, 0, num_counters * sizeof(std::int32_t), stream.cuda().handle()));
  launch(stream, thread_for_each(tokens.count), count_kernel, tokens, lists);
  const std::int64_t num_rows = tokens.table.num_rows;
  launch(stream, thread_for_each(num_rows), take_places_kernel, num_rows, lists);
  launch(stream, thread_for_each(tokens.count), fill_lists_kernel, tokens, lists);
  launch(stream, warp_for_each(tokens.count), order_kernel, tokens, lists);
}

template <int n>
LaunchShape strips_of(std::int64_t C, unsigned num_blocks) {
  return {.grid = dim3(blocks_for(static_cast<std::size_t>(C), kWarp * n), num_blocks),
          .block = dim3(kWarp, kRowsPerBlock)};
}

template <int n, typename T>
void add_to_tokens(StreamView stream, const EmbeddingBackward& args) {
  const auto num_tokens = static_cast<std::int64_t>(args.tokens.num_elements());
  const std::int64_t num_rows = args.d_token_table.dim(0);
  const ArenaScope scratch(stream.workspace());
  const Lists lists(stream.workspace(), num_tokens, num_rows);
  const Tokens tokens{
      .values = args.tokens.data<std::int32_t>(),
      .count = static_cast<std::int32_t>(num_tokens),
      .table = {args.d_token_table.data<float>(), args.first_token, num_rows},
  };
  make_lists(stream, tokens, lists);
  const std::int64_t C = args.dy.dim(2);
  const auto most_runs = static_cast<std::size_t>(std::min(num_tokens, num_rows));
  launch(stream,
         strips_of<n>(C, std::min(blocks_for(most_runs, kRowsPerBlock), kMostRunBlocks)),
         add_tokens_kernel<n, T>,
         lists,
         args.dy.data<T>(),
         C,
         args.d_token_table.data<float>());
}

template <int n, typename T>
void add_to_positions(StreamView stream, const EmbeddingBackward& args) {
  const std::int64_t num_positions = args.tokens.dim(1);
  const std::int64_t C = args.dy.dim(2);
  launch(stream,
         strips_of<n>(C,
                      std::min(blocks_for(static_cast<std::size_t>(num_positions), kRowsPerBlock),
                               kMostPositionBlocks)),
         add_to_positions_kernel<n, T>,
         static_cast<std::int32_t>(args.tokens.dim(0)),
         static_cast<std::int32_t>(num_positions),
         args.dy.data<T>(),
         C,
         args.d_position_table.data<float>());
}

}  // namespace

template <typename T>
void embedding_backward(StreamView stream, const EmbeddingBackward& args) {
  const auto is_aligned = [&](const Tensor& table) {
    return args.dy.dim(2) % kColumns == 0 && are_aligned(args.dy.data<T>(), table.data<float>());
  };
  if (!args.d_token_table.empty()) {
    is_aligned(args.d_token_table) ? add_to_tokens<kColumns, T>(stream, args)
                                   : add_to_tokens<1, T>(stream, args);
  }
  if (!args.d_position_table.empty()) {
    is_aligned(args.d_position_table) ? add_to_positions<kColumns, T>(stream, args)
                                      : add_to_positions<1, T>(stream, args);
  }
}

std::size_t embedding_workspace_bytes(std::int64_t num_tokens, std::int64_t num_rows) {
  Arena arena = Arena::measuring();
  static_cast<void>(Lists(arena, num_tokens, num_rows));
  return arena.high_water();
}

template void embedding_backward<float>(StreamView, const EmbeddingBackward&);
template void embedding_backward<BFloat16>(StreamView, const EmbeddingBackward&);

}  // namespace slackline::cuda
