#pragma once

#include <cstddef>
#include <optional>
#include <vector>

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

}  // namespace slackline
