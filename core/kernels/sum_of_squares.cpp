#include "core/kernels/sum_of_squares.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(double sum_of_squares(StreamView stream, std::span<const float> values))

double sum_of_squares(StreamView stream, const Tensor& tensor) {
  check_operand(tensor, {"sum_of_squares tensor", DType::f32, tensor.shape()});
  return computes(stream) ? cpu::sum_of_squares(stream, tensor.span<float>()) : 0.0;
}

}  // namespace slackline
