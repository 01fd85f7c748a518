#include "core/kernels/elementwise/gelu.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void gelu_forward(StreamView stream, const Tensor& x, const Tensor& y))
SL_BACKENDS_OF_TYPE(void gelu_backward(StreamView stream, const GeluBackward& args))

void gelu_forward(StreamView stream, const Tensor& x, const Tensor& y) {
  check_operand(y, {"gelu_forward y", x.dtype(), x.shape()});
  SL_DISPATCH(stream, x.dtype(), gelu_forward, stream, x, y);
}

void gelu_backward(StreamView stream, const GeluBackward& args) {
  const Tensor& x = args.x;
  check_operand(args.dy, {"gelu_backward dy", x.dtype(), x.shape()});
  check_operand(args.dx, {"gelu_backward dx", x.dtype(), x.shape()});
  SL_DISPATCH(stream, x.dtype(), gelu_backward, stream, args);
}

}  // namespace slackline
