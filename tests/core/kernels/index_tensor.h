#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

// Indices, u32, where ops of the device under test can read and write them.
struct IndexTensor {
  explicit IndexTensor(const std::vector<std::uint32_t>& values)
      : memory(DType::i32, {static_cast<std::int64_t>(values.size())}),  // GuardedTensor has no u32
        view(memory.view().raw(), DType::u32, memory.view().shape(), memory.view().device()) {
    std::copy(values.begin(), values.end(), view.data<std::uint32_t>());
  }

  GuardedTensor memory;
  Tensor view;
};

}  // namespace slackline::testing
