#include "core/kernels/accumulate.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

namespace cpu {

template <typename T>
void accumulate(StreamView stream, const Tensor& from, const Tensor& to);
template <typename T>
void subtract(StreamView stream, const Tensor& from, const Tensor& to);
void keep_bf16_error(StreamView stream, const Tensor& values);

}  // namespace cpu

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
  if (computes(stream)) {
    cpu::keep_bf16_error(stream, values);
  }
}

}  // namespace slackline
