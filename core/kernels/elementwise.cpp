#include "core/kernels/elementwise.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

namespace cpu {

void copy_bytes(StreamView stream, const Tensor& from, const Tensor& to);
void fill_zero(StreamView stream, const Tensor& tensor);
template <typename T>
void convert_from(StreamView stream, const Tensor& from, const Tensor& to);
template <typename T>
void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out);
void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out);

}  // namespace cpu

void cast(StreamView stream, const Tensor& from, const Tensor& to) {
  check_operand(to, {"cast to", to.dtype(), from.shape()});
  if (from.dtype() == to.dtype()) {
    if (computes(stream)) {
      cpu::copy_bytes(stream, from, to);
    }
    return;
  }
  SL_DISPATCH(stream, from.dtype(), convert_from, stream, from, to);
}

void fill_zero(StreamView stream, const Tensor& tensor) {
  if (computes(stream)) {
    cpu::fill_zero(stream, tensor);
  }
}

void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  check_operand(b, {"add b", a.dtype(), a.shape()});
  check_operand(out, {"add out", a.dtype(), a.shape()});
  SL_DISPATCH(stream, a.dtype(), add, stream, a, b, out);
}

void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out) {
  check_operand(x, {"scale x", DType::f32, x.shape()});
  check_operand(out, {"scale out", DType::f32, x.shape()});
  if (computes(stream)) {
    cpu::scale(stream, x, factor, out);
  }
}

}  // namespace slackline
