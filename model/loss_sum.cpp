#include "model/loss_sum.h"

#include <span>
#include <utility>

#include "core/cuda/cuda_memory.h"

namespace slackline {

namespace {

double sum_of(std::span<const float> losses) {
  double sum = 0.0;
  for (const float loss : losses) {
    sum += loss;
  }
  return sum;
}

}  // namespace

void LossSum::add(StreamView stream, const Tensor& losses) {
  if (losses.device() != Device::cuda) {
    sum_ += sum_of(losses.span<float>());
    return;
  }
  if (num_copied_ == copied_.size()) {
    copied_.emplace_back();
  }
  Copied& copied = copied_[num_copied_++];
  if (copied.memory.bytes() < losses.bytes()) {
    copied.memory = Buffer("losses of a micro-batch", losses.bytes(), Backing::pinned);
  }
  copied.count = losses.num_elements();
  cuda::copy(stream.cuda().handle(), copied.memory.data(), losses.raw(), losses.bytes());
}

double LossSum::take(StreamView stream) {
  stream.synchronize();
  for (std::size_t i = 0; i < num_copied_; ++i) {
    sum_ += sum_of({reinterpret_cast<const float*>(copied_[i].memory.data()), copied_[i].count});
  }
  num_copied_ = 0;
  return std::exchange(sum_, 0.0);
}

}  // namespace slackline
