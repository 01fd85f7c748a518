#include <algorithm>

#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/loss/device_softmax.h"
#include "core/kernels/loss/kept_logits.h"
#include "core/kernels/loss/logit_rows.h"

// Cross-entropy of rows whose columns are spread over ranks. For the statistics a block has a row
// (kept_logits.h); for the loss and the gradient, which sum nothing over a row, it has a batch.
namespace slackline::cuda {

namespace {

constexpr unsigned kLossThreads = 256;

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

}  // namespace

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args) {
  constexpr int kPack = kPackSize<float>;
  const LogitBatches batches(args.logits.dim(1), kPack, true);
  const LaunchShape shape{.grid = static_cast<unsigned>(args.logits.dim(0)),
                          .block = batches.num_threads,
                          .shared_bytes = batches.shared_bytes()};
  launch(stream,
         shape,
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

}  // namespace slackline::cuda
