#pragma once

#include <string_view>

#include "core/tensor/tensor.h"

namespace slackline {

// What an op expects of one of its tensors; `name` is the op's and the argument's.
struct Operand {
  std::string_view name;
  DType dtype = DType::f32;
  Shape shape;
};

// Throws Error that says both what came and what is due. An empty tensor passes only where no
// elements are due.
void check_operand(const Tensor& tensor, const Operand& expected);

}  // namespace slackline
