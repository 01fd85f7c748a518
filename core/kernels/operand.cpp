#include "core/kernels/operand.h"

#include <string>

#include "core/check.h"

namespace slackline {

namespace {

std::string describe(DType dtype, const Shape& shape) {
  return std::string(name_of(dtype)) + " " + shape.to_string();
}

}  // namespace

void check_operand(const Tensor& tensor, const Operand& expected) {
  const bool is_there = !tensor.empty() || expected.shape.num_elements() == 0;
  SL_CHECK(is_there && tensor.dtype() == expected.dtype && tensor.shape() == expected.shape,
           std::string(expected.name) + " is " +
               (is_there ? describe(tensor.dtype(), tensor.shape()) : "missing") + ", due is " +
               describe(expected.dtype, expected.shape));
}

}  // namespace slackline
