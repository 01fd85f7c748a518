#include "core/kernels/bias_gradient.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias))

void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias) {
  SL_CHECK_EQ(dy.shape().rank(), 2);
  check_operand(d_bias, {"bias_gradient d_bias", DType::f32, {dy.dim(1)}});
  SL_DISPATCH(stream, dy.dtype(), bias_gradient, stream, dy, d_bias);
}

}  // namespace slackline
