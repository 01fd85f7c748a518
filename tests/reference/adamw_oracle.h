#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "core/kernels/update/adamw.h"

namespace slackline::reference {

// Weights and moments of one tensor, in double, as core/kernels/update/adamw.h defines the update.
struct AdamwState {
  std::vector<double> weight;
  std::vector<double> m;
  std::vector<double> v;

  void update(const std::vector<double>& gradient, const AdamwStep& step) {
    const double correction1 = 1.0 - std::pow(step.beta1, static_cast<double>(step.step));
    const double correction2 = 1.0 - std::pow(step.beta2, static_cast<double>(step.step));
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double g = step.gradient_scale * gradient[i];
      m[i] = step.beta1 * m[i] + (1.0 - step.beta1) * g;
      v[i] = step.beta2 * v[i] + (1.0 - step.beta2) * g * g;
      const double direction = m[i] / correction1 / (std::sqrt(v[i] / correction2) + step.eps);
      weight[i] -= step.lr * (direction + step.weight_decay * weight[i]);
    }
  }
};

}  // namespace slackline::reference
