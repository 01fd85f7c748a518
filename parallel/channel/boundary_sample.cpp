#include "parallel/channel/boundary_sample.h"

#include <utility>

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

BoundarySample::BoundarySample(Classes classes, ErrorFeedback feedback)
    : classes_(std::move(classes)), feedback_(feedback) {}

void BoundarySample::add_input(StreamView stream,
                               std::uint64_t micro_batch,
                               const Tensor& input,
                               const Codec::Matrices& residual) {
  if (feedback_ != ErrorFeedback::lazy || input.empty()) {
    return;
  }
  const Shape shape{static_cast<std::int64_t>(input.num_elements())};
  Buffer widened =
      make_buffer("sampled input of a stage", DType::f32, shape, backing_of(input.device()));
  cast(stream, input.reshaped(shape), widened.view(DType::f32, shape));
  stream.synchronize();
  if (before_) {
    sums_[classes_.at(*before_)] += sums_of_pair(
        residual.front(), input_.view(DType::f32, shape), widened.view(DType::f32, shape));
  }
  before_ = micro_batch;
  input_ = std::move(widened);
}

void BoundarySample::add_message(StreamView stream,
                                 std::uint64_t micro_batch,
                                 const Codec& codec,
                                 const Tensor& values,
                                 const Codec::Matrices& residual,
                                 const Tensor& frame) {
  MessageSums& sums = sums_[classes_.at(micro_batch)];
  if (sums.elements > 0.0) {
    return;
  }
  const Buffer decoded =
      make_buffer("sampled message", DType::f32, values.shape(), backing_of(values.device()));
  const Tensor sent = decoded.view(DType::f32, values.shape());
  codec.decode(stream, frame, {sent}, false);
  stream.synchronize();
  sums += sums_of_message(values, sent, residual);
}

}  // namespace slackline
