#pragma once

#include <cmath>
#include <numbers>

namespace slackline::reference {

// The tanh form of GELU and its derivative, in double. Written with the sigmoid of 2 u, which
// equals (1 + tanh u) / 2 and is accurate for negative x too.
inline double gelu(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

inline double gelu_derivative(double x) {
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double u = root * (x + 0.044715 * x * x * x);
  const double tanh_u = std::tanh(u);
  return 0.5 * (1.0 + tanh_u) +
         0.5 * x * (1.0 - tanh_u * tanh_u) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

}  // namespace slackline::reference
