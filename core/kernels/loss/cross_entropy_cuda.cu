#include <algorithm>

#include "core/cuda/map.h"
#include "core/kernels/loss/cross_entropy.h"

// A block has a row, which is read once and written once: V = 50304 floats fit the shared memory of
// an H100's block. Threads take a row in batches of neighbours. What a thread makes of a batch are
// exponentials relative to the batch's own largest logit, so that nothing has to wait for the
// row's; how much too large they are is put right when they are written. Of longer rows the last
// batches are not kept, but read again.
namespace slackline::cuda {

namespace {

constexpr int kBatch = 16;  // columns that a thread has at once
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kSharedBytes = 226 * 1024;  // of 227 KiB; some is for sums over the block
constexpr unsigned kLossThreads = 256;

// Below all logits, and finite: differences to it are numbers.
constexpr float kLeast = -3e38F;

// What one rank knows of a row of logits.
struct Statistics {
  float most;
  float sum;
  float target_logit;
};

static_assert(sizeof(Statistics) == kSoftmaxStatistics * sizeof(float));

// A row's statistics over all ranks. all[r * N] is rank r's. Roundings are spelled out here and
// below: every kernel gets the same bits.
__device__ Statistics combine(const Statistics* all, std::int64_t N, std::int64_t num_ranks) {
  Statistics whole = all[0];
  for (std::int64_t r = 1; r < num_ranks; ++r) {
    whole.most = fmaxf(whole.most, all[r * N].most);
    whole.target_logit += all[r * N].target_logit;
  }
  whole.sum = 0.0F;
  for (std::int64_t r = 0; r < num_ranks; ++r) {
    whole.sum = fmaf(all[r * N].sum, expf(all[r * N].most - whole.most), whole.sum);
  }
  return whole;
}

__device__ inline float loss_of(const Statistics& whole) {
  return logf(whole.sum) + (whole.most - whole.target_logit);
}

// What makes scale * (probability - is_target) of exponentials.
struct Gradient {
  float factor;
  float scale;

  __device__ float operator()(float exponential, bool is_target) const {
    return fmaf(exponential, factor, is_target ? -scale : -0.0F);
  }
};

// Of exponentials that are relative to own_most.
__device__ inline Gradient gradient_of(const Statistics& whole, float own_most, float scale) {
  return {.factor = __fmul_rn(scale, expf(own_most - whole.most)) / whole.sum, .scale = scale};
}

// Rows of logits, and which column of each is the target's.
struct Rows {
  float* values;
  int num_columns;
  const std::int32_t* targets;
  std::int64_t first_token;
};

// A row as this thread takes it: packs of n neighbours, those of a batch a block's width apart.
// With n above 1 packs are aligned: the first may begin before the row, the last end after it.
template <int n>
struct Row {
  static constexpr int kPacks = kBatch / n;

  __device__ Row(const Rows& rows, std::int64_t index)
      : values(rows.values + index * rows.num_columns),
        num_columns(rows.num_columns),
        before(static_cast<int>(reinterpret_cast<std::uintptr_t>(values) / sizeof(float) % n)) {
    const std::int64_t column = rows.targets[index] - rows.first_token;
    target = column >= 0 && column < num_columns ? static_cast<int>(column) : -1;
  }

  // Of this thread; counted from the first of the row.
  __device__ unsigned pack(int batch, int index) const {
    return static_cast<unsigned>(batch * kPacks + index) * blockDim.x + threadIdx.x;
  }

  __device__ int first_column(unsigned pack) const { return static_cast<int>(pack * n) - before; }

  __device__ bool has_all(int column) const { return column >= 0 && column + n <= num_columns; }

  __device__ bool has(int column) const { return column >= 0 && column < num_columns; }

  float* values;
  int num_columns;
  int before;  // of the first pack
  int target;  // -1: elsewhere
};

// Columns beyond the row are far below all.
template <int n>
__device__ Floats<kBatch> load_batch(const Row<n>& row, int batch) {
  Floats<kBatch> logits;
#pragma unroll
  for (int p = 0; p < kBatch / n; ++p) {
    const unsigned pack = row.pack(batch, p);
    const int first = row.first_column(pack);
    Floats<n> values;
    if (row.has_all(first)) {
      values = load<n>(row.values - row.before + pack * n);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        values[i] = row.has(first + i) ? row.values[first + i] : -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < n; ++i) {
      logits[p * n + i] = values[i];
    }
  }
  return logits;
}

struct Batch {
  Floats<kBatch> exponentials;
  float most;  // that they are relative to
};

__device__ Batch exponentiate(const Floats<kBatch>& logits) {
  Batch batch{.exponentials = {}, .most = kLeast};
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    batch.most = fmaxf(batch.most, logits[i]);
  }
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    batch.exponentials[i] = expf(logits[i] - batch.most);
  }
  return batch;
}

// How a block takes a row, and the batches that it keeps in shared memory.
struct Batches {
  unsigned num_threads;
  int count;
  int num_kept;

  Batches(std::int64_t V, int n, bool keep) {
    const auto columns = static_cast<std::size_t>(V + n - 1);
    count = static_cast<int>(blocks_for(std::max<std::size_t>(columns, 1), kMostThreads * kBatch));
    num_threads =
        kWarp * std::max(1U, blocks_for(columns, static_cast<std::size_t>(count) * kBatch * kWarp));
    const std::size_t most_kept = kSharedBytes / (num_threads * (kBatch + 1) * sizeof(float));
    num_kept = keep ? std::min(count, static_cast<int>(most_kept)) : 0;
  }

  [[nodiscard]] std::size_t shared_bytes() const {
    return static_cast<std::size_t>(num_kept) * num_threads * (kBatch + 1) * sizeof(float);
  }

  // Each thread's packs lie beside its neighbours'; the largest logits are behind them all.
  template <int n>
  __device__ void keep(int index, const Batch& batch) const {
    float* const kept = dynamic_shared<float>();
#pragma unroll
    for (int p = 0; p < kBatch / n; ++p) {
      Floats<n> pack;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        pack[i] = batch.exponentials[p * n + i];
      }
      store<n>(kept + ((index * (kBatch / n) + p) * blockDim.x + threadIdx.x) * n, pack);
    }
    kept[(num_kept * kBatch + index) * blockDim.x + threadIdx.x] = batch.most;
  }

  template <int n>
  __device__ Batch kept(int index) const {
    const float* const kept = dynamic_shared<float>();
    Batch batch;
#pragma unroll
    for (int p = 0; p < kBatch / n; ++p) {
      const Floats<n> pack =
          load<n>(kept + ((index * (kBatch / n) + p) * blockDim.x + threadIdx.x) * n);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        batch.exponentials[p * n + i] = pack[i];
      }
    }
    batch.most = kept[(num_kept * kBatch + index) * blockDim.x + threadIdx.x];
    return batch;
  }
};

// Reads a row. Every thread gets its statistics, thread 0 alone the target's logit. Ends behind a
// barrier: the row may be overwritten.
template <int n>
__device__ Statistics read_row(const Row<n>& row, const Batches& batches) {
  __shared__ float scratch[kMostThreads / kWarp];
  Statistics own{.most = kLeast, .sum = 0.0F, .target_logit = 0.0F};
  if (threadIdx.x == 0 && row.target >= 0) {
    own.target_logit = row.values[row.target];
  }
  Floats<kBatch> next = load_batch<n>(row, 0);
  for (int b = 0; b < batches.count; ++b) {
    const Floats<kBatch> logits = next;
    if (b + 1 < batches.count) {
      next = load_batch<n>(row, b + 1);
    }
    const Batch batch = exponentiate(logits);
    if (b < batches.num_kept) {
      batches.keep<n>(b, batch);
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      sum += batch.exponentials[i];
    }
    const float most = fmaxf(own.most, batch.most);
    own.sum = fmaf(own.sum, expf(own.most - most), __fmul_rn(sum, expf(batch.most - most)));
    own.most = most;
  }
  const float most = block_max(own.most, scratch);
  own.sum = block_sum(__fmul_rn(own.sum, expf(own.most - most)), scratch);
  own.most = most;
  __syncthreads();
  return own;
}

// to[column] = value(exponential, is_target) for the packs of a batch; exponentials * factor are
// relative to the row's largest logit.
template <int n, typename T, typename Value>
__device__ void write_batch(const Row<n>& row,
                            int batch,
                            const Floats<kBatch>& exponentials,
                            float factor,
                            T* to,
                            const Value& value) {
#pragma unroll
  for (int p = 0; p < kBatch / n; ++p) {
    const unsigned pack = row.pack(batch, p);
    const int first = row.first_column(pack);
    Floats<n> values;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      values[i] = value(__fmul_rn(exponentials[p * n + i], factor), first + i == row.target);
    }
    if (row.has_all(first)) {
      store<n>(pack_at<n>(to - row.before, pack), values);
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        if (row.has(first + i)) {
          to[first + i] = from_float<T>(values[i]);
        }
      }
    }
  }
}

// The same for a row that read_row() has read.
template <int n, typename T, typename Value>
__device__ void write_row(
    const Row<n>& row, const Batches& batches, float most, T* to, const Value& value) {
  for (int b = 0; b < batches.count; ++b) {
    const Batch batch =
        b < batches.num_kept ? batches.kept<n>(b) : exponentiate(load_batch<n>(row, b));
    write_batch<n>(row, b, batch.exponentials, expf(batch.most - most), to, value);
  }
}

struct Exponential {
  __device__ float operator()(float exponential, bool /*is_target*/) const { return exponential; }
};

template <int n>
__global__ void __launch_bounds__(kMostThreads)
    statistics_kernel(Rows rows, Batches batches, Statistics* statistics) {
  const Row<n> row(rows, blockIdx.x);
  const Statistics own = read_row<n>(row, batches);
  if (threadIdx.x == 0) {
    statistics[blockIdx.x] = own;
  }
  write_row<n>(row, batches, own.most, row.values, Exponential{});
}

template <int n, typename T>
__global__ void __launch_bounds__(kMostThreads)
    cross_entropy_kernel(Rows rows, Batches batches, float scale, float* losses, T* d_logits) {
  const Row<n> row(rows, blockIdx.x);
  const Statistics own = read_row<n>(row, batches);
  const Statistics whole = combine(&own, 1, 1);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = loss_of(whole);
  }
  if (d_logits != nullptr) {
    write_row<n>(row,
                 batches,
                 own.most,
                 d_logits + std::int64_t{blockIdx.x} * rows.num_columns,
                 gradient_of(whole, own.most, scale));
  }
}

struct AllStatistics {
  const Statistics* values;  // (num_ranks, N)
  std::int64_t N;
  std::int64_t num_ranks;
  std::int64_t rank;
};

// Blocks take a batch of a row each, so and so many a row; the row's first writes its loss.
template <int n, typename T>
__global__ void __launch_bounds__(kLossThreads) loss_kernel(Rows rows,
                                                            unsigned blocks_per_row,
                                                            AllStatistics all,
                                                            float scale,
                                                            float* losses,
                                                            T* d_logits) {
  const std::int64_t index = blockIdx.x / blocks_per_row;
  const int batch = static_cast<int>(blockIdx.x % blocks_per_row);
  const Row<n> row(rows, index);
  const Floats<kBatch> exponentials =
      d_logits == nullptr ? Floats<kBatch>{} : load_batch<n>(row, batch);
  const Statistics whole = combine(all.values + index, all.N, all.num_ranks);
  if (batch == 0 && threadIdx.x == 0) {
    losses[index] = loss_of(whole);
  }
  if (d_logits != nullptr) {
    const float own_most = all.values[all.rank * all.N + index].most;
    write_batch<n>(row,
                   batch,
                   exponentials,
                   1.0F,
                   d_logits + index * rows.num_columns,
                   gradient_of(whole, own_most, scale));
  }
}

Rows rows_of(const Tensor& values, const Tensor& targets, std::int64_t first_token) {
  return {.values = values.data<float>(),
          .num_columns = static_cast<int>(values.dim(1)),
          .targets = targets.data<std::int32_t>(),
          .first_token = first_token};
}

// True where columns that are aligned in one are aligned in the other: rows are of one length.
template <typename T>
bool align_together(const float* a, const T* b) {
  const auto elements = [](const auto* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) / sizeof(*pointer);
  };
  return b == nullptr || elements(a) % kPackSize<float> == elements(b) % kPackSize<float>;
}

template <typename T>
T* elements_of(const Tensor& d_logits) {
  return d_logits.empty() ? nullptr : d_logits.data<T>();
}

template <int n, typename T>
void start_loss(StreamView stream, const SoftmaxLoss& args) {
  const std::int64_t N = args.exponentials.dim(0);
  const auto columns = static_cast<std::size_t>(args.exponentials.dim(1) + n - 1);
  T* const d_logits = elements_of<T>(args.d_logits);
  const unsigned blocks_per_row =
      d_logits == nullptr ? 1 : std::max(1U, blocks_for(columns, kLossThreads * kBatch));
  const AllStatistics all{
      .values = reinterpret_cast<const Statistics*>(args.statistics.data<float>()),
      .N = N,
      .num_ranks = args.statistics.dim(0),
      .rank = args.rank,
  };
  const LaunchShape shape{.grid = static_cast<unsigned>(N) * blocks_per_row,
                          .block = d_logits == nullptr ? kWarp : kLossThreads};
  launch(stream,
         shape,
         loss_kernel<n, T>,
         rows_of(args.exponentials, args.targets, args.first_token),
         blocks_per_row,
         all,
         args.gradient_scale,
         args.losses.data<float>(),
         d_logits);
}

template <int n, typename T>
void start_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  T* const d_logits = elements_of<T>(args.d_logits);
  const Batches batches(args.logits.dim(1), n, d_logits != nullptr);
  const LaunchShape shape{.grid = static_cast<unsigned>(args.logits.dim(0)),
                          .block = batches.num_threads,
                          .shared_bytes = batches.shared_bytes()};
  launch(stream,
         shape,
         cross_entropy_kernel<n, T>,
         rows_of(args.logits, args.targets, 0),
         batches,
         args.gradient_scale,
         args.losses.data<float>(),
         d_logits);
}

}  // namespace

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args) {
  constexpr int kPack = kPackSize<float>;
  const Batches batches(args.logits.dim(1), kPack, true);
  const LaunchShape shape{.grid = static_cast<unsigned>(args.logits.dim(0)),
                          .block = batches.num_threads,
                          .shared_bytes = batches.shared_bytes()};
  launch(stream,
         shape,
         statistics_kernel<kPack>,
         rows_of(args.logits, args.targets, args.first_token),
         batches,
         reinterpret_cast<Statistics*>(args.statistics.data<float>()));
}

template <typename T>
void softmax_loss(StreamView stream, const SoftmaxLoss& args) {
  align_together(args.exponentials.data<float>(), elements_of<T>(args.d_logits))
      ? start_loss<kPackSize<float>, T>(stream, args)
      : start_loss<1, T>(stream, args);
}

template <typename T>
void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  align_together(args.logits.data<float>(), elements_of<T>(args.d_logits))
      ? start_cross_entropy<kPackSize<float>, T>(stream, args)
      : start_cross_entropy<1, T>(stream, args);
}

template void softmax_loss<float>(StreamView, const SoftmaxLoss&);
template void softmax_loss<BFloat16>(StreamView, const SoftmaxLoss&);
template void softmax_cross_entropy<float>(StreamView, const SoftmaxCrossEntropy&);
template void softmax_cross_entropy<BFloat16>(StreamView, const SoftmaxCrossEntropy&);

}  // namespace slackline::cuda
