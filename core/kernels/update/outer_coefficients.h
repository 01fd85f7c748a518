#pragma once

#include "core/kernels/update/outer_step.h"

namespace slackline {

// Holds what an outer step multiplies with and limits by, rounded once for all backends.
struct OuterCoefficients {
  explicit OuterCoefficients(const OuterStep& step)
      : lr(static_cast<float>(step.lr)),
        momentum(static_cast<float>(step.momentum)),
        scale(static_cast<float>(step.scale)),
        clip(static_cast<float>(step.clip)) {}

  float lr;
  float momentum;
  float scale;
  float clip;
};

}  // namespace slackline
