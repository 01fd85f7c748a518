#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

// Indices, u32, where ops of the device under test can read and write them.
struct IndexTensor {
  explicit IndexTensor(const std::vector<std::uint32_t>& values)
      : memory(DType::i32, {static_cast<std::int64_t>(values.size())}),  // GuardedTensor has no u32
        view(memory.view().raw(), DType::u32, memory.view().shape(), memory.view().device()) {
    std::memcpy(view.raw(), values.data(), view.bytes());
  }

  GuardedTensor memory;
  Tensor view;
};

}  // namespace slackline::testing
