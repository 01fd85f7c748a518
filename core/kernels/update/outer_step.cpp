#include "core/kernels/update/outer_step.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void outer_step(StreamView stream, const OuterTensors& tensors, const OuterStep& step))
SL_BACKENDS(void exchange(StreamView stream, const Tensor& a, const Tensor& b))

void outer_step(StreamView stream, const OuterTensors& tensors, const OuterStep& step) {
  const Shape& shape = tensors.anchor.shape();
  check_operand(tensors.anchor, {"outer_step anchor", DType::f32, shape});
  check_operand(tensors.difference, {"outer_step difference", DType::f32, shape});
  check_operand(tensors.momentum, {"outer_step momentum", DType::f32, shape});
  check_operand(tensors.weight, {"outer_step weight", DType::f32, shape});
  SL_BACKEND(stream, outer_step, stream, tensors, step);
}

void exchange(StreamView stream, const Tensor& a, const Tensor& b) {
  check_operand(a, {"exchange a", DType::f32, a.shape()});
  check_operand(b, {"exchange b", DType::f32, a.shape()});
  SL_BACKEND(stream, exchange, stream, a, b);
}

}  // namespace slackline
