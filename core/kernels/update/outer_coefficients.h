#pragma once

#include "core/kernels/update/outer_step.h"

namespace slackline {

// Holds what an outer step multiplies with and limits by, rounded once for all backends.
struct OuterCoefficients {
  explicit OuterCoefficients(const OuterStep& step)
      : lr(static_cast<float>(step.lr)),
        momentum(static_cast<float>(step.momentum)),
        scale(static_cast<float>(step.scale)),
        shrink(static_cast<float>(step.shrink)),
        clip(static_cast<float>(step.clip)) {}

  float lr;
  float momentum;
  float scale;
  float shrink;
  float clip;
};

// Holds beside them what an anchor moves by, over lr, with m as the step leaves it:
//   of_momentum m + of_learned (scale d)
struct OuterChange : OuterCoefficients {
  explicit OuterChange(const OuterStep& step)
      : OuterCoefficients(step),
        of_momentum(step.nesterov ? momentum : 1.0F),
        of_learned(step.nesterov ? 1.0F : 0.0F) {}

  float of_momentum;
  float of_learned;
};

// The memory of an outer step's tensors.
struct OuterArrays {
  explicit OuterArrays(const OuterTensors& tensors)
      : difference(tensors.difference.data<float>()),
        momentum(tensors.momentum.data<float>()),
        anchor(tensors.anchor.data<float>()),
        weight(tensors.weight.data<float>()) {}

  float* difference;
  float* momentum;
  float* anchor;
  float* weight;
};

}  // namespace slackline
