#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/check.h"

namespace slackline {

namespace {

constexpr double kDecayShare = 0.2;  // of a wsd run whose decay_steps are absent

// How far `step` is on the way from `begin` to `end`, within [0, 1].
double progress(std::int64_t step, double begin, std::int64_t end) {
  const double length = static_cast<double>(end) - begin;
  if (length <= 0.0) {
    return 1.0;
  }
  return std::clamp((static_cast<double>(step) - begin) / length, 0.0, 1.0);
}

}  // namespace

double learning_rate(const OptimizerConfig& config, std::int64_t step, std::int64_t num_steps) {
  SL_CHECK(step >= 1, "step " + std::to_string(step));
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  const auto warm = static_cast<double>(config.warmup_steps);
  const double range = config.lr - config.min_lr;
  switch (config.schedule) {
    case LearningRateSchedule::constant:
      return config.lr;
    case LearningRateSchedule::linear:
      return config.lr - range * progress(step, warm, num_steps);
    case LearningRateSchedule::cosine: {
      const double angle = std::numbers::pi * progress(step, warm, num_steps);
      return config.min_lr + range * 0.5 * (1.0 + std::cos(angle));
    }
    case LearningRateSchedule::wsd: {
      const auto steps = static_cast<double>(num_steps);
      const double decay_begin = config.decay_steps
                                     ? steps - static_cast<double>(*config.decay_steps)
                                     : (1.0 - kDecayShare) * steps;
      return config.lr - range * progress(step, std::max(warm, decay_begin), num_steps);
    }
  }
  SL_CHECK(false, "an unknown schedule");
}

}  // namespace slackline
