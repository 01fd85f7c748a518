#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/loss/kept_logits.h"

// Cross-entropy of whole rows, a block for each (kept_logits.h).
namespace slackline::cuda {

namespace {

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
  const LaunchShape shape{.grid = static_cast<unsigned>(args.logits.dim(0)),
                          .block = batches.num_threads,
                          .shared_bytes = batches.shared_bytes()};
  launch(stream,
         shape,
         cross_entropy_kernel<n, T>,
         rows_of(args.logits, args.row, args.targets, 0),
         batches,
         args.gradient_scale,
         args.losses.data<float>(),
         d_logits);
}

}  // namespace

template <typename T>
void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args) {
  align_together(args.logits.data<float>(), elements_of<T>(args.d_logits))
      ? start_cross_entropy<kPackSize<float>, T>(stream, args)
      : start_cross_entropy<1, T>(stream, args);
}

template void softmax_cross_entropy<float>(StreamView, const SoftmaxCrossEntropy&);
template void softmax_cross_entropy<BFloat16>(StreamView, const SoftmaxCrossEntropy&);

}  // namespace slackline::cuda
