#pragma once

#include <cstddef>
#include <vector>

#include "core/kernels/matmul/matmul.h"
#include "tests/reference/gelu_oracle.h"

namespace slackline::reference {

// Matrix products in double, as core/kernels/matmul/matmul.h defines them.
struct Matmul {
  std::size_t M = 1, N = 1, K = 1;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;

  // op(A) op(B), and what bounds its rounding: the same sums over absolute values.
  struct Result {
    std::vector<double> c;
    std::vector<double> magnitude;
  };

  [[nodiscard]] Result multiply(const std::vector<double>& a, const std::vector<double>& b) const {
    Result result{std::vector<double>(M * N), std::vector<double>(M * N)};
    for (std::size_t i = 0; i < M; ++i) {
      for (std::size_t k = 0; k < K; ++k) {
        const double a_value = transpose_a == Transpose::yes ? a[k * M + i] : a[i * K + k];
        for (std::size_t j = 0; j < N; ++j) {
          const double b_value = transpose_b == Transpose::yes ? b[j * K + k] : b[k * N + j];
          result.c[i * N + j] += a_value * b_value;
          result.magnitude[i * N + j] += std::abs(a_value * b_value);
        }
      }
    }
    return result;
  }
};

}  // namespace slackline::reference
