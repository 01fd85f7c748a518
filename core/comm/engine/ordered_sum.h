#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/comm/communicator.h"
#include "core/tensor/dtype.h"

namespace slackline {

// A sum over ranks of one stretch of a tensor. Per element, in the order given: f32 and bf16 in
// fp32 with one rounding at the end, f64 in double. The bits depend on nothing else. Part of a
// larger sum may keep what is wider than the tensor. REQUIRES: the order fits the number of inputs.
struct OrderedSum {
  DType dtype = DType::f32;  // of the inputs
  // The output's type; empty: the inputs'. Bf16 may be summed to f32, and f32 to bf16.
  std::optional<DType> output_dtype{};
  SumOrder order{};
  std::vector<const std::byte*> inputs{};  // one per rank, in rank order; two at least
  std::byte* output = nullptr;             // may be one of the inputs
  std::size_t elements = 0;

  void run() const;
};

// Calls add(T, Wide, Out) with values of the types of the sum's inputs, additions and output.
template <typename Add>
void with_types_of(const OrderedSum& sum, const Add& add) {
  const DType from = sum.dtype;
  const DType to = sum.output_dtype.value_or(from);
  if (from == DType::bf16 && to == DType::f32) {
    return add(BFloat16(), float(), float());
  }
  if (from == DType::f32 && to == DType::bf16) {
    return add(float(), float(), BFloat16());
  }
  SL_CHECK(to == from,
           "a sum of " + std::string(name_of(from)) + " as " + std::string(name_of(to)));
  switch (from) {
    case DType::f32:
      return add(float(), float(), float());
    case DType::bf16:
      return add(BFloat16(), float(), BFloat16());
    case DType::f64:
      return add(double(), double(), double());
    default:
      SL_CHECK(false, "sums over ranks take f32, bf16 and f64; got " + std::string(name_of(from)));
  }
}

}  // namespace slackline
