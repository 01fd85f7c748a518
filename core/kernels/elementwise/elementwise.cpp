#include "core/kernels/elementwise/elementwise.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void copy_bytes(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS(void fill_zero(StreamView stream, const Tensor& tensor))
SL_BACKENDS_OF_TYPE(void convert_from(StreamView stream, const Tensor& from, const Tensor& to))
SL_BACKENDS_OF_TYPE(
    void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out))
SL_BACKENDS(void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out))

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

void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  check_operand(b, {"add b", a.dtype(), a.shape()});
  check_operand(out, {"add out", a.dtype(), a.shape()});
  SL_DISPATCH(stream, a.dtype(), add, stream, a, b, out);
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  check_operand(x, {"scale x", DType::f32, x.shape()});
  check_operand(out, {"scale out", DType::f32, x.shape()});
  SL_BACKEND(stream, scale, stream, x, factor, out);
}

}  // namespace slackline
