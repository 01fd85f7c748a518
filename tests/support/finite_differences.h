#pragma once

#include <functional>
#include <vector>

namespace slackline::testing {

// The gradient of f at x by central differences in double. With the default step and f of order
// one, truncation (step^2) and rounding (1e-16 / step) both stay below 1e-9.
[[nodiscard]] inline std::vector<double> finite_differences(
    const std::function<double(const std::vector<double>&)>& f,
    std::vector<double> x,
    double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double center = x[i];
    x[i] = center + step;
    const double above = f(x);
    x[i] = center - step;
    gradient[i] = (above - f(x)) / (2.0 * step);
    x[i] = center;
  }
  return gradient;
}

}  // namespace slackline::testing
