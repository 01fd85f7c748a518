#include "model/linear.h"

#include <algorithm>

#include "core/kernels/elementwise/bias_gradient.h"
#include "core/tensor/profile.h"

namespace slackline {

Linear::Linear(Parameters& parameters, const std::string& name)
    : weight_(&parameters.at(name + ".weight")),
      bias_(&parameters.at(name + ".bias")),
      adds_bias_(weight_->spec.cut != TensorCut::rows || parameters.slice().tensor_rank == 0),
      shares_bias_(weight_->spec.cut == TensorCut::rows && parameters.slice().tensor_size > 1) {}

void Linear::forward(StreamView stream,
                     const Tensor& x,
                     const Tensor& y,
                     const Tensor& gelu) const {
  const ProfileRange range(stream, "gemm");
  matmul(stream,
         {.a = x,
          .b = weight_->compute(),
          .c = y,
          .bias = adds_bias_ ? bias_->compute() : Tensor{},
          .gelu_output = gelu});
}

void Linear::backward_input(StreamView stream,
                            const Tensor& dy,
                            const Tensor& dx,
                            const Tensor& gelu_input) const {
  const ProfileRange range(stream, "gemm");
  matmul(stream,
         {.a = dy,
          .b = weight_->compute(),
          .c = dx,
          .transpose_b = Transpose::yes,
          .gelu_input = gelu_input});
}

void Linear::backward_weight(StreamView stream,
                             const Tensor& x,
                             const Tensor& dy,
                             Accumulate accumulate) const {
  // What all ranks make has to have the same bits on all of them, whichever algorithm the product
  // of each takes.
  const bool is_joined = weight_->spec.trained && bias_->spec.trained && !shares_bias_;
  if (weight_->spec.trained) {
    const ProfileRange range(stream, "gemm");
    matmul(stream,
           {.a = x,
            .b = dy,
            .c = weight_->gradient,
            .transpose_a = Transpose::yes,
            .accumulate = accumulate,
            .bias_gradient = is_joined ? bias_->gradient : Tensor()});
  }
  if (bias_->spec.trained && !is_joined) {
    const ProfileRange range(stream, "bias gradient");
    bias_gradient(stream, dy, bias_->gradient);
  }
}

std::size_t Linear::workspace_bytes(
    std::int64_t N, const Shape& in_out, DType dtype, DType partial, const Workers& workers) {
  const std::int64_t in = in_out[0];
  const std::int64_t out = in_out[1];
  const Tensor x(nullptr, dtype, {N, in});
  const Tensor y(nullptr, dtype, {N, out});
  const Tensor weight(nullptr, dtype, {in, out});
  const Tensor gradient(nullptr, DType::f32, {in, out});
  const Tensor bias(nullptr, dtype, {out});
  const Tensor bias_gradient(nullptr, DType::f32, {out});
  const Tensor partial_x(nullptr, partial, {N, in});
  const Tensor partial_y(nullptr, partial, {N, out});
  return std::max({
      matmul_workspace_bytes({.a = x, .b = weight, .c = partial_y, .bias = bias}, workers),
      matmul_workspace_bytes({.a = y, .b = weight, .c = partial_x, .transpose_b = Transpose::yes},
                             workers),
      matmul_workspace_bytes({.a = x, .b = weight, .c = y, .bias = bias, .gelu_output = y},
                             workers),
      matmul_workspace_bytes(
          {.a = y, .b = weight, .c = x, .transpose_b = Transpose::yes, .gelu_input = x}, workers),
      matmul_workspace_bytes({.a = x,
                              .b = y,
                              .c = gradient,
                              .transpose_a = Transpose::yes,
                              .accumulate = Accumulate::yes,
                              .bias_gradient = bias_gradient},
                             workers),
      bias_gradient_workspace_bytes(N, out, workers),
  });
}

}  // namespace slackline
