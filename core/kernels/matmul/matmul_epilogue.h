#pragma once

#include <cstddef>

#include "core/kernels/elementwise/gelu_math.h"
#include "core/kernels/matmul/matmul.h"
#include "core/kernels/simd.h"

namespace slackline {

// What happens to sums of a product on their way to C (matmul.h lists it), tile by tile while the
// tile is in cache. Element types are looked up per vector: negligible beside K multiplications.
class MatmulEpilogue {
 public:
  explicit MatmulEpilogue(const MatmulArgs& args)
      : args_(args), row_(static_cast<std::size_t>(args.c_row())) {}

  // False where C may receive the sums as they are.
  [[nodiscard]] bool is_needed() const {
    return args_.c.dtype() != DType::f32 || !args_.bias.empty() || !args_.gelu_output.empty() ||
           !args_.gelu_input.empty();
  }

  struct Block {
    std::size_t row = 0, column = 0;  // in C
    std::size_t rows = 0, columns = 0;
    const float* sums = nullptr;  // may be C's own memory
    std::size_t stride = 0;       // of sums
  };

  void apply(const Block& block) const {
    for (std::size_t i = 0; i < block.rows; ++i) {
      const float* sums = block.sums + i * block.stride;
      const std::size_t row = (block.row + i) * row_;
      simd::for_each_vector(block.columns, [&](std::size_t j, auto part) {
        apply_to_vector(simd::load(sums + j, part), row, block.column + j, part);
      });
    }
  }

 private:
  template <typename Part>
  void apply_to_vector(simd::Floats sum, std::size_t row, std::size_t column, Part part) const {
    if (!args_.bias.empty()) {
      sum = simd::hn::Add(sum, load(args_.bias, column, part));
    }
    if (!args_.gelu_output.empty()) {
      // GELU takes C as stored, so that the backward pass, which reads C, sees the same function.
      store(simd::gelu(rounded_as_c(sum)), args_.gelu_output, row + column, part);
    }
    if (!args_.gelu_input.empty()) {
      const simd::Floats x = load(args_.gelu_input, row + column, part);
      sum = simd::hn::Mul(sum, simd::gelu_derivative(x));
    }
    store(sum, args_.c, row + column, part);
  }

  [[nodiscard]] simd::Floats rounded_as_c(simd::Floats values) const {
    return args_.c.dtype() == DType::bf16 ? simd::round_to<BFloat16>(values) : values;
  }

  template <typename Part>
  static simd::Floats load(const Tensor& tensor, std::size_t at, Part part) {
    return tensor.dtype() == DType::bf16
               ? simd::load(static_cast<const BFloat16*>(tensor.raw()) + at, part)
               : simd::load(static_cast<const float*>(tensor.raw()) + at, part);
  }

  template <typename Part>
  static void store(simd::Floats values, const Tensor& tensor, std::size_t at, Part part) {
    if (tensor.dtype() == DType::bf16) {
      simd::store(values, static_cast<BFloat16*>(tensor.raw()) + at, part);
    } else {
      simd::store(values, static_cast<float*>(tensor.raw()) + at, part);
    }
  }

  const MatmulArgs& args_;
  std::size_t row_;  // elements from one row of C to the next
};

}  // namespace slackline
