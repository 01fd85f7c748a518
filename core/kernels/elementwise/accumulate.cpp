#include "core/kernels/elementwise/accumulate.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void accumulate(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS_OF_TYPE(void subtract(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS(void keep_bf16_error(StreamView stream, const Tensor& values))

void accumulate(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"accumulate to", DType::f32, from.shape()});
  SL_DISPATCH(stream, from.dtype(), accumulate, stream, from, to);
}

void subtract(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"subtract to", DType::f32, from.shape()});
  SL_DISPATCH(stream, from.dtype(), subtract, stream, from, to);
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  check_operand(values, {"keep_bf16_error values", DType::f32, values.shape()});
  SL_BACKEND(stream, keep_bf16_error, stream, values);
}

}  // namespace slackline
