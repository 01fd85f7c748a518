#include "core/kernels/elementwise/bias_gradient.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias))
SL_BACKENDS(std::size_t bias_gradient_workspace_bytes(std::int64_t N, std::int64_t C))

void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias) {
  SL_CHECK_EQ(dy.shape().rank(), 2);
  check_operand(d_bias, {"bias_gradient d_bias", DType::f32, {dy.dim(1)}});
  SL_DISPATCH(stream, dy.dtype(), bias_gradient, stream, dy, d_bias);
}

std::size_t bias_gradient_workspace_bytes(std::int64_t N, std::int64_t C, const Workers& workers) {
  return workers.device == Device::cuda ? cuda::bias_gradient_workspace_bytes(N, C)
                                        : cpu::bias_gradient_workspace_bytes(N, C);
}

}  // namespace slackline
