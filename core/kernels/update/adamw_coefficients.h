#pragma once

#include <cmath>

#include "core/kernels/update/adamw.h"

namespace slackline {

// The update with everything that is the same for all elements worked out in double:
//   w -= rate * m / (sqrt(v) * root_correction + eps) + decay * w
// `decay` is kept apart from w, since 1 - lr * weight_decay would lose its digits in a float.
struct AdamwCoefficients {
  AdamwCoefficients() = default;

  explicit AdamwCoefficients(const AdamwStep& step)
      : gradient_scale(static_cast<float>(step.gradient_scale)),
        beta1(static_cast<float>(step.beta1)),
        beta2(static_cast<float>(step.beta2)),
        one_minus_beta1(static_cast<float>(1.0 - step.beta1)),
        one_minus_beta2(static_cast<float>(1.0 - step.beta2)),
        rate(static_cast<float>(step.lr / correction(step.beta1, step.step))),
        root_correction(static_cast<float>(1.0 / std::sqrt(correction(step.beta2, step.step)))),
        eps(static_cast<float>(step.eps)),
        decay(static_cast<float>(step.lr * step.weight_decay)) {}

  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }

  float gradient_scale = 0.0F;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float one_minus_beta1 = 0.0F;
  float one_minus_beta2 = 0.0F;
  float rate = 0.0F;
  float root_correction = 0.0F;
  float eps = 0.0F;
  float decay = 0.0F;
};

// The memory of an update's tensors.
struct AdamwArrays {
  float* weight;
  const float* gradient;
  float* m;
  float* v;
  BFloat16* weight_copy;  // null: none
};

[[nodiscard]] inline AdamwArrays arrays_of(const AdamwTensors& tensors) {
  return {tensors.weight.data<float>(),
          tensors.gradient.data<float>(),
          tensors.m.data<float>(),
          tensors.v.data<float>(),
          tensors.weight_copy.empty() ? nullptr : tensors.weight_copy.data<BFloat16>()};
}

// What makes a direction, without the rate, of moments: m * scale / (sqrt(v) * root_scale + eps).
struct AdamwDirection {
  explicit AdamwDirection(const AdamwStep& step)
      : scale(1.0 / AdamwCoefficients::correction(step.beta1, step.step)),
        root_scale(1.0 / std::sqrt(AdamwCoefficients::correction(step.beta2, step.step))),
        eps(step.eps) {}

  double scale;
  double root_scale;
  double eps;
};

}  // namespace slackline
