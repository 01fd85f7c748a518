#include <algorithm>

#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/loss/kept_logits.h"
#include "core/kernels/loss/logit_rows.h"

// A block has a whole row (kept_logits.h), but for the loss and the gradient of rows whose columns
// are spread over ranks, which sum nothing over a row: there it has a batch. Roundings are spelled
// out here and in kept_logits.h: every kernel gets the same bits.
namespace slackline::cuda {

namespace {

constexpr unsigned kLossThreads = 256;

// Returns a row's statistics over all ranks. all[r * N] is rank r's.
__device__ inline LogitStatistics combine(const LogitStatistics* all,
                                          std::int64_t N,
                                          std::int64_t num_ranks) {
  LogitStatistics whole = all[0];
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

__device__ inline float loss_of(const LogitStatistics& whole) {
  return logf(whole.sum) + (whole.most - whole.target_logit);
}

// Turns exponentials into scale * (probability - is_target).
struct LogitGradient {
  float factor;
  float scale;

  __device__ float operator()(float exponential, bool is_target) const {
    return fmaf(exponential, factor, is_target ? -scale : -0.0F);
  }
};

// For exponentials that are relative to own_most.
__device__ inline LogitGradient gradient_of(const LogitStatistics& whole,
                                            float own_most,
                                            float scale) {
  return {.factor = __fmul_rn(scale, expf(own_most - whole.most)) / whole.sum, .scale = scale};
}

struct Exponential {
  __device__ float operator()(float exponential, bool /*is_target*/) const { return exponential; }
};

template <int n>
__global__ void __launch_bounds__(LogitBatches::kMostThreads)
    statistics_kernel(LogitRows rows, LogitBatches batches, LogitStatistics* statistics) {
  const LogitRow<n> row(rows, blockIdx.x);
  const LogitStatistics own = read_row<n>(row, batches);
  if (threadIdx.x == 0) {
    statistics[blockIdx.x] = own;
  }
  write_row<n>(row, batches, own.most, row.values, Exponential{});
}

struct AllStatistics {
  const LogitStatistics* values;  // (num_ranks, N)
  std::int64_t N;
  std::int64_t num_ranks;
  std::int64_t rank;
};

// Blocks take a batch of a row each, so and so many a row; the row's first writes its loss.
template <int n, typename T>
__global__ void __launch_bounds__(kLossThreads) loss_kernel(LogitRows rows,
                                                            unsigned blocks_per_row,
                                                            AllStatistics all,
                                                            float scale,
                                                            float* losses,
                                                            T* d_logits) {
  const std::int64_t index = blockIdx.x / blocks_per_row;
  const int batch = static_cast<int>(blockIdx.x % blocks_per_row);
  const LogitRow<n> row(rows, index);
  const Floats<kLogitBatch> exponentials =
      d_logits == nullptr ? Floats<kLogitBatch>{} : load_batch<n>(row, batch);
  const LogitStatistics whole = combine(all.values + index, all.N, all.num_ranks);
  if (batch == 0 && threadIdx.x == 0) {
    losses[index] = loss_of(whole);
  }
  if (d_logits != nullptr) {
    const float own_most = all.values[all.rank * all.N + index].most;
    write_batch<n>(row,
                   batch,
                   exponentials,
                   1.0F,
                   d_logits + index * rows.distance,
                   gradient_of(whole, own_most, scale));
  }
}

template <int n, typename T>
void start_loss(StreamView stream, const SoftmaxLoss& args) {
  const std::int64_t N = args.exponentials.dim(0);
  const auto columns = static_cast<std::size_t>(args.exponentials.dim(1) + n - 1);
  T* const d_logits = elements_of<T>(args.d_logits);
  const unsigned blocks_per_row =
      d_logits == nullptr ? 1 : std::max(1U, blocks_for(columns, kLossThreads * kLogitBatch));
  const AllStatistics all{
      .values = reinterpret_cast<const LogitStatistics*>(args.statistics.data<float>()),
      .N = N,
      .num_ranks = args.statistics.dim(0),
      .rank = args.rank,
  };
  const LaunchShape shape{.grid = static_cast<unsigned>(N) * blocks_per_row,
                          .block = d_logits == nullptr ? kWarp : kLossThreads};
  launch(stream,
         shape,
         loss_kernel<n, T>,
         rows_of(args.exponentials, args.row, args.targets, args.first_token),
         blocks_per_row,
         all,
         args.gradient_scale,
         args.losses.data<float>(),
         d_logits);
}

template <int n, typename T>
__global__ void __launch_bounds__(LogitBatches::kMostThreads, n > 1 ? 2 : 1) cross_entropy_kernel(
    LogitRows rows, LogitBatches batches, float scale, float* losses, T* d_logits) {
  const LogitRow<n> row(rows, blockIdx.x);
  const LogitStatistics own = read_row<n>(row, batches);
  const LogitStatistics whole = combine(&own, 1, 1);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = loss_of(whole);
  }
  if (d_logits != nullptr) {
    write_row<n>(row,
                 batches,
                 own.most,
                 d_logits + std::int64_t{blockIdx.x} * rows.distance,
                 gradient_of(whole, own.most, scale));
  }
}

template <int n, typename T>
void start_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  T* const d_logits = elements_of<T>(args.d_logits);
  const LogitBatches batches(args.logits.dim(1), n, d_logits != nullptr);
  launch(stream,
         batches.block_for_each(args.logits.dim(0)),
         cross_entropy_kernel<n, T>,
         rows_of(args.logits, args.row, args.targets, 0),
         batches,
         args.gradient_scale,
         args.losses.data<float>(),
         d_logits);
}

}  // namespace

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args) {
  constexpr int kPack = kPackSize<float>;
  const LogitBatches batches(args.logits.dim(1), kPack, true);
  launch(stream,
         batches.block_for_each(args.logits.dim(0)),
         statistics_kernel<kPack>,
         rows_of(args.logits, args.row, args.targets, args.first_token),
         batches,
         reinterpret_cast<LogitStatistics*>(args.statistics.data<float>()));
}

template <typename T>
void softmax_loss(StreamView stream, const SoftmaxLoss& args) {
  align_together(args.exponentials.data<float>(), elements_of<T>(args.d_logits))
      ? start_loss<kPackSize<float>, T>(stream, args)
      : start_loss<1, T>(stream, args);
}

template void softmax_loss<float>(StreamView, const SoftmaxLoss&);
template void softmax_loss<BFloat16>(StreamView, const SoftmaxLoss&);

template <typename T>
void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  align_together(args.logits.data<float>(), elements_of<T>(args.d_logits))
      ? start_cross_entropy<kPackSize<float>, T>(stream, args)
      : start_cross_entropy<1, T>(stream, args);
}

template void softmax_cross_entropy<float>(StreamView, const SoftmaxCrossEntropy&);
template void softmax_cross_entropy<BFloat16>(StreamView, const SoftmaxCrossEntropy&);

}  // namespace slackline::cuda
