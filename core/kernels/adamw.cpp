#include "core/kernels/adamw.h"

#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void adamw(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step))

void adamw(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step) {
  const Shape& shape = tensors.weight.shape();
  check_operand(tensors.weight, {"adamw weight", DType::f32, shape});
  check_operand(tensors.gradient, {"adamw gradient", DType::f32, shape});
  check_operand(tensors.m, {"adamw m", DType::f32, shape});
  check_operand(tensors.v, {"adamw v", DType::f32, shape});
  if (!tensors.weight_copy.empty()) {
    check_operand(tensors.weight_copy, {"adamw weight_copy", DType::bf16, shape});
  }
  SL_CHECK(step.step >= 1, "step " + std::to_string(step.step));
  SL_BACKEND(stream, adamw, stream, tensors, step);
}

}  // namespace slackline
