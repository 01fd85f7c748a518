// Measures matmul, attention and cross entropy on the shapes of GPT-2 124M, against the FMA peak.
//
// Each figure is the median over pairs (peak, op), run one after the other, since clocks move.
// Operands rotate through a ring larger than the last cache, as weights do in a step.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <CLI11.hpp>

#include "core/buffer.h"
#include "core/kernels/attention.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/matmul.h"
#include "core/rng.h"
#include "tools/bench/fma_peak.h"

namespace slackline {

namespace {

struct Options {
  int threads = default_num_threads();
  int pairs = 9;
  std::string only;
};

// Memory from which operands are taken in turn, filled with normal numbers of deviation 0.02 (the
// scale of GPT-2's weights).
class Ring {
 public:
  Ring() : memory_("ring", kBytes) {
    std::vector<float> pattern(1U << 20U);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      pattern[i] = static_cast<float>(0.02 * normal_number(philox_key(1, "bench"), i));
    }
    const std::size_t bytes = pattern.size() * sizeof(float);
    for (std::size_t at = 0; at < kBytes; at += bytes) {
      std::memcpy(memory_.data() + at, pattern.data(), bytes);
    }
  }

  // Values of both types are finite and of the right scale, whatever stood there before: a bf16
  // read from a float's lower half is random bits, so bf16 tensors are narrowed afresh.
  Tensor take(DType dtype, const Shape& shape) {
    const std::size_t bytes = Arena::aligned_bytes(dtype, shape);
    if (used_ + bytes > kBytes) {
      used_ = 0;
    }
    const Tensor tensor = memory_.view(dtype, shape, used_);
    used_ += bytes;
    return tensor;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{768} << 20U;
  Buffer memory_;
  std::size_t used_ = 0;
};

}  // namespace

}  // namespace slackline
