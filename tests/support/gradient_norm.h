#pragma once

#include <cmath>
#include <numeric>
#include <vector>

#include "optim/adamw_optimizer.h"

namespace slackline {

// The norm of all gradients of an optimizer that has the whole model.
inline double gradient_norm(const AdamwOptimizer& optimizer, StreamView stream) {
  const std::vector<double> squares = optimizer.squared_norms(stream);
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

}  // namespace slackline
