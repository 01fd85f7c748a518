#pragma once

#include <span>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// AdamW updates (Loshchilov and Hutter, 2019) of tensors, each in one pass over memory:
//   g = gradient_scale * gradient
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr * (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay * w)
// All f32. weight_copy, when given, receives w rounded to bf16. Element by element, so any split
// of a tensor gives the same bits.
struct AdamwTensors {
  Tensor weight{};
  Tensor gradient{};
  Tensor m{};
  Tensor v{};
  Tensor weight_copy{};  // bf16, or empty
};

struct AdamwStep {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // clipping
  std::int64_t step = 1;        // from 1
};

struct AdamwUpdate {
  AdamwTensors tensors{};
  AdamwStep step{};
};

void adamw(StreamView stream, std::span<const AdamwUpdate> updates);

}  // namespace slackline
