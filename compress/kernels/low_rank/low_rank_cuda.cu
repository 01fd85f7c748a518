#include "compress/kernels/low_rank/low_rank_backends.h"
#include "core/cuda/batch.h"
#include "core/cuda/map.h"

// Bytes of memory traffic per element with `added`: 12 for the left factor, 4 for the right one, 12
// for output and remainder; factors are small and stay in the second-level cache. All matrices of a
// call go in one launch. Sums over rows are made per block of rows and then added in order.
namespace slackline::cuda {

namespace {

constexpr unsigned kWarpsPerBlock = 8;
constexpr unsigned kColumnThreads = 64;      // of a block that walks down rows
constexpr std::int64_t kRowsPerBlock = 256;  // of sums over rows
constexpr std::int64_t kRowsPerOutputBlock = 64;

struct Item {
  const float* matrix;  // read, or what is written
  float* added;
  float* left;
  float* right;
  float* partials;  // (row blocks, r, m); null where there is one block
  std::int64_t n;
  std::int64_t m;
  int r;

  [[nodiscard]] std::int64_t row_blocks() const { return (n + kRowsPerBlock - 1) / kRowsPerBlock; }
};

Item item_of(const LowRankProduct& product) {
  const auto data = [](const Tensor& tensor) {
    return tensor.empty() ? nullptr : tensor.data<float>();
  };
  return {.matrix = data(product.matrix),
          .added = data(product.added),
          .left = product.left.data<float>(),
          .right = product.right.data<float>(),
          .partials = nullptr,
          .n = product.left.dim(0),
          .m = product.right.dim(1),
          .r = static_cast<int>(product.left.dim(1))};
}

// Rows of a warp of the left factor's kernel: what it keeps of them fits registers.
template <int R>
inline constexpr int kRowsPerWarp = R <= 8 ? 4 : 2;

// The rows of the right factor, n columns of each; zero from r on.
template <int R, int n>
struct RightPacks {
  Floats<n> rows[R];

  __device__ RightPacks(const Item& item, std::int64_t column) {
#pragma unroll
    for (int k = 0; k < R; ++k) {
      rows[k] = k < item.r ? load<n>(item.right + k * item.m + column) : Floats<n>{};
    }
  }
};

// A warp for some rows, across all columns.
template <int R, int n>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarp)
    left_kernel(const __grid_constant__ Batch<Item> batch) {
  constexpr int kRows = kRowsPerWarp<R>;
  const BatchPlace place(batch);
  const Item& item = batch.items[place.index];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t first =
      (std::int64_t{place.block} * kWarpsPerBlock + threadIdx.x / kWarp) * kRows;
  float sums[kRows][R] = {};
  for (std::int64_t column = lane * n; column < item.m; column += std::int64_t{kWarp} * n) {
    const RightPacks<R, n> right(item, column);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (first + i >= item.n) {
        continue;
      }
      const std::int64_t at = (first + i) * item.m + column;
      Floats<n> x = load<n>(item.matrix + at);
      if (item.added != nullptr) {
        const Floats<n> added = load<n>(item.added + at);
#pragma unroll
        for (int c = 0; c < n; ++c) {
          x[c] += added[c];
        }
        store<n>(item.added + at, x);
      }
#pragma unroll
      for (int k = 0; k < R; ++k) {
#pragma unroll
        for (int c = 0; c < n; ++c) {
          sums[i][k] = fmaf(x[c], right.rows[k][c], sums[i][k]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const float total = warp_sum(sums[i][k]);
      if (lane == 0 && first + i < item.n && k < item.r) {
        item.left[(first + i) * item.r + k] = total;
      }
    }
  }
}

// Brings rows [first, end) of the left factor to shared memory, R to a row; zero from r on.
template <int R>
__device__ void bring_left(const Item& item, std::int64_t first, std::int64_t end, float* to) {
  for (std::int64_t i = threadIdx.x; i < (end - first) * R; i += kColumnThreads) {
    const auto k = static_cast<int>(i % R);
    to[i] = k < item.r ? item.left[(first + i / R) * item.r + k] : 0.0F;
  }
  __syncthreads();
}

// Which rows and columns of its item a block of kColumnThreads threads has.
struct Strip {
  std::int64_t row_block;
  std::int64_t first_column;  // of this thread

  __device__ Strip(const Item& item, unsigned block, int n)
      : row_block(block / num_strips(item.m, n)),
        first_column((std::int64_t{block % num_strips(item.m, n)} * kColumnThreads + threadIdx.x) *
                     n) {}

  [[nodiscard]] static constexpr unsigned num_strips(std::int64_t m, int n) {
    const std::int64_t columns = std::int64_t{kColumnThreads} * n;
    return static_cast<unsigned>((m + columns - 1) / columns);
  }
};

template <int R, int n>
__global__ void __launch_bounds__(kColumnThreads)
    right_kernel(const __grid_constant__ Batch<Item> batch) {
  __shared__ float left[kRowsPerBlock * R];
  const BatchPlace place(batch);
  const Item& item = batch.items[place.index];
  const Strip strip(item, place.block, n);
  const std::int64_t begin = strip.row_block * kRowsPerBlock;
  const std::int64_t end = begin + kRowsPerBlock < item.n ? begin + kRowsPerBlock : item.n;
  bring_left<R>(item, begin, end, left);
  if (strip.first_column >= item.m) {
    return;
  }
  const float* const matrix = item.added != nullptr ? item.added : item.matrix;
  Floats<n> sums[R] = {};
#pragma unroll 4
  for (std::int64_t row = begin; row < end; ++row) {
    const Floats<n> x = load<n>(matrix + row * item.m + strip.first_column);
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const float share = left[(row - begin) * R + k];
#pragma unroll
      for (int c = 0; c < n; ++c) {
        sums[k][c] = fmaf(share, x[c], sums[k][c]);
      }
    }
  }
  float* const to =
      item.partials == nullptr ? item.right : item.partials + strip.row_block * item.r * item.m;
#pragma unroll
  for (int k = 0; k < R; ++k) {
    if (k < item.r) {
      store<n>(to + k * item.m + strip.first_column, sums[k]);
    }
  }
}

// right = the sum of partials over blocks of rows.
__global__ void __launch_bounds__(kMapThreads)
    add_blocks_kernel(const __grid_constant__ Batch<Item> batch) {
  const BatchPlace place(batch);
  const Item& item = batch.items[place.index];
  const std::int64_t count = item.r * item.m;
  const std::int64_t i = std::int64_t{place.block} * kMapThreads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const std::int64_t blocks = (item.n + kRowsPerBlock - 1) / kRowsPerBlock;
  float sum = item.partials[i];
  for (std::int64_t block = 1; block < blocks; ++block) {
    sum += item.partials[block * count + i];
  }
  item.right[i] = sum;
}

template <int R, int n>
__global__ void __launch_bounds__(kColumnThreads)
    multiply_kernel(const __grid_constant__ Batch<Item> batch, LowRankOutput output, float share) {
  __shared__ float left[kRowsPerOutputBlock * R];
  const BatchPlace place(batch);
  const Item& item = batch.items[place.index];
  const Strip strip(item, place.block, n);
  const std::int64_t begin = strip.row_block * kRowsPerOutputBlock;
  const std::int64_t end =
      begin + kRowsPerOutputBlock < item.n ? begin + kRowsPerOutputBlock : item.n;
  bring_left<R>(item, begin, end, left);
  if (strip.first_column >= item.m) {
    return;
  }
  const RightPacks<R, n> right(item, strip.first_column);
  float* const out = output == LowRankOutput::none ? nullptr : const_cast<float*>(item.matrix);
#pragma unroll 2
  for (std::int64_t row = begin; row < end; ++row) {
    Floats<n> value{};
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const float factor = left[(row - begin) * R + k];
#pragma unroll
      for (int c = 0; c < n; ++c) {
        value[c] = fmaf(factor, right.rows[k][c], value[c]);
      }
    }
    const std::int64_t at = row * item.m + strip.first_column;
    if (item.added != nullptr) {
      Floats<n> rest = load<n>(item.added + at);
#pragma unroll
      for (int c = 0; c < n; ++c) {
        rest[c] = fmaf(-share, value[c], rest[c]);
      }
      store<n>(item.added + at, rest);
    }
    if (output == LowRankOutput::add) {
      const Floats<n> before = load<n>(out + at);
#pragma unroll
      for (int c = 0; c < n; ++c) {
        value[c] += before[c];
      }
    }
    if (out != nullptr) {
      store<n>(out + at, value);
    }
  }
}

bool moves_in_packs(const Item& item) {
  return item.m % kPackSize<float> == 0 &&
         are_aligned(item.matrix, item.added, item.right, item.partials);
}

// Calls start(R, n, items) for all items whose rank is rounded up to R and that are moved n floats
// at a time.
template <typename Start>
void for_each_kind(const std::vector<Item>& items, const Start& start) {
  const auto of_rank = [&](auto most_rank, int above) {
    std::vector<Item> packed;
    std::vector<Item> single;
    for (const Item& item : items) {
      if (item.r > above && item.r <= most_rank()) {
        (moves_in_packs(item) ? packed : single).push_back(item);
      }
    }
    start(most_rank, Constant<kPackSize<float>>{}, packed);
    start(most_rank, Constant<1>{}, single);
  };
  of_rank(Constant<1>{}, 0);
  of_rank(Constant<2>{}, 1);
  of_rank(Constant<4>{}, 2);
  of_rank(Constant<8>{}, 4);
  of_rank(Constant<kThinRank>{}, 8);
}

std::vector<Item> items_of(const LowRankProducts& products) {
  std::vector<Item> items;
  items.reserve(products.size());
  for (const LowRankProduct& product : products) {
    items.push_back(item_of(product));
  }
  return items;
}

std::size_t partials_bytes(const Item& item) {
  return item.row_blocks() > 1
             ? Arena::aligned_bytes(DType::f32, {item.row_blocks() * item.r, item.m})
             : 0;
}

}  // namespace

void thin_low_rank_left(StreamView stream, const LowRankProducts& products) {
  for_each_kind(items_of(products), [&](auto R, auto n, const std::vector<Item>& items) {
    constexpr std::int64_t kRows = std::int64_t{kWarpsPerBlock} * kRowsPerWarp<R()>;
    const auto blocks_of = [](const Item& item) {
      return blocks_for(static_cast<std::size_t>(item.n), kRows);
    };
    for_each_batch(items, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
      launch(
          stream, {.grid = blocks, .block = kWarpsPerBlock * kWarp}, left_kernel<R(), n()>, batch);
    });
  });
}

void thin_low_rank_right(StreamView stream, const LowRankProducts& products) {
  ArenaScope scratch(stream.workspace());
  std::vector<Item> all = items_of(products);
  std::vector<Item> split;
  for (Item& item : all) {
    if (item.row_blocks() > 1) {
      item.partials =
          scratch.allocate(DType::f32, {item.row_blocks() * item.r, item.m}).data<float>();
      split.push_back(item);
    }
  }
  for_each_kind(all, [&](auto R, auto n, const std::vector<Item>& items) {
    const auto blocks_of = [](const Item& item) {
      return static_cast<unsigned>(item.row_blocks()) *
             Strip::num_strips(item.m, decltype(n)::value);
    };
    for_each_batch(items, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
      launch(stream, {.grid = blocks, .block = kColumnThreads}, right_kernel<R(), n()>, batch);
    });
  });
  const auto blocks_of = [](const Item& item) {
    return blocks_for(static_cast<std::size_t>(item.r * item.m), kMapThreads);
  };
  for_each_batch(split, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
    launch(stream, {.grid = blocks, .block = kMapThreads}, add_blocks_kernel, batch);
  });
}

void thin_low_rank_multiply(StreamView stream,
                            const LowRankProducts& products,
                            LowRankOutput output,
                            float share) {
  for_each_kind(items_of(products), [&](auto R, auto n, const std::vector<Item>& items) {
    const auto blocks_of = [](const Item& item) {
      return blocks_for(static_cast<std::size_t>(item.n), kRowsPerOutputBlock) *
             Strip::num_strips(item.m, decltype(n)::value);
    };
    for_each_batch(items, blocks_of, [&](const Batch<Item>& batch, unsigned blocks) {
      launch(stream,
             {.grid = blocks, .block = kColumnThreads},
             multiply_kernel<R(), n()>,
             batch,
             output,
             share);
    });
  });
}

std::size_t thin_low_rank_workspace_bytes(const LowRankProducts& products) {
  std::size_t bytes = 0;
  for (const LowRankProduct& product : products) {
    bytes += partials_bytes(item_of(product));
  }
  return bytes;
}

}  // namespace slackline::cuda
