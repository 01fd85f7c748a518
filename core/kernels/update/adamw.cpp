#include "core/kernels/update/adamw.h"

#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void adamw(StreamView stream, std::span<const AdamwUpdate> updates))

namespace {

void check(const AdamwUpdate& update) {
  const AdamwTensors& tensors = update.tensors;
  const Shape& shape = tensors.weight.shape();
  check_operand(tensors.weight, {"adamw weight", DType::f32, shape});
  check_operand(tensors.gradient, {"adamw gradient", DType::f32, shape});
  check_operand(tensors.m, {"adamw m", DType::f32, shape});
  check_operand(tensors.v, {"adamw v", DType::f32, shape});
  if (!tensors.weight_copy.empty()) {
    check_operand(tensors.weight_copy, {"adamw weight_copy", DType::bf16, shape});
  }
  SL_CHECK(update.step.step >= 1, "step " + std::to_string(update.step.step));
}

}  // namespace

void adamw(StreamView stream, std::span<const AdamwUpdate> updates) {
  for (const AdamwUpdate& update : updates) {
    check(update);
  }
  SL_BACKEND(stream, adamw, stream, updates);
}

}  // namespace slackline
