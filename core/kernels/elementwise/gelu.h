#pragma once

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). Element by element, f32 or
// bf16, computed in float. x and y may be the same memory; so may dy and dx.
void gelu_forward(StreamView stream, const Tensor& x, const Tensor& y);

// dx = dy * gelu'(x)
struct GeluBackward {
  Tensor x{};
  Tensor dy{};
  Tensor dx{};
};

void gelu_backward(StreamView stream, const GeluBackward& args);

}  // namespace slackline
