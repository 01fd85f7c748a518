#include "core/kernels/elementwise/elementwise.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void copy_bytes(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS(void fill_zero(StreamView stream, const Tensor& tensor))
SL_BACKENDS_OF_TYPE(void convert_from(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS_OF_TYPE(void accumulate(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS_OF_TYPE(void subtract(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS(void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out))
SL_BACKENDS(void keep_bf16_error(StreamView stream, const Tensor& values))

void cast(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"cast to", to.dtype(), from.shape()});
  if (from.dtype() == to.dtype()) {
    SL_BACKEND(stream, copy_bytes, stream, from, to);
    return;
  }
  SL_DISPATCH(stream, from.dtype(), convert_from, stream, from, to);
}

void fill_zero(StreamView stream, const Tensor& tensor) {
  SL_BACKEND(stream, fill_zero, stream, tensor);
}

void accumulate(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"accumulate to", DType::f32, from.shape()});
  SL_DISPATCH(stream, from.dtype(), accumulate, stream, from, to);
}

void subtract(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"subtract to", DType::f32, from.shape()});
  SL_DISPATCH(stream, from.dtype(), subtract, stream, from, to);
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  check_operand(x, {"scale x", DType::f32, x.shape()});
  check_operand(out, {"scale out", DType::f32, x.shape()});
  SL_BACKEND(stream, scale, stream, x, factor, out);
}

void keep_bf16_error(StreamView stream, const Tensor& values) {
  check_operand(values, {"keep_bf16_error values", DType::f32, values.shape()});
  SL_BACKEND(stream, keep_bf16_error, stream, values);
}

}  // namespace slackline
