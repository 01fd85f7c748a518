#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/rng.h"
#include "core/tensor/arena.h"
#include "core/tensor/buffer.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Memory from which tensors are taken in turn, normal numbers at first: more of it than the last
// cache holds, so that what is taken comes from memory.
class Ring {
 public:
  Ring() : memory_("ring", kBytes) {
    std::vector<float> pattern(kPattern);
    for (std::size_t i = 0; i < kPattern; ++i) {
      pattern[i] = static_cast<float>(normal_pair(philox_key(1, "bench"), i / 2)[i % 2]);
    }
    for (std::size_t at = 0; at < kBytes; at += kPattern * sizeof(float)) {
      std::memcpy(memory_.data() + at, pattern.data(), kPattern * sizeof(float));
    }
  }

  // REQUIRES: it fits.
  Tensor take(DType dtype, const Shape& shape) {
    const std::size_t bytes = Arena::aligned_bytes(dtype, shape);
    SL_CHECK(bytes <= kBytes, std::to_string(bytes));
    used_ = used_ + bytes > kBytes ? 0 : used_;
    const Tensor tensor = memory_.view(dtype, shape, used_);
    used_ += bytes;
    return tensor;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{384} << 20U;
  static constexpr std::size_t kPattern = std::size_t{1} << 20U;

  Buffer memory_;
  std::size_t used_ = 0;
};

}  // namespace slackline
