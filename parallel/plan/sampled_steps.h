#pragma once

#include <cstdint>

#include "parallel/plan/compression_plan.h"

namespace slackline {

// Low-rank factors begin at random and turn towards a message with each step, and residuals fill
// up; so many steps after a plan's first one, errors are those that it will go on with.
inline constexpr std::int64_t kStepsToSettle = 3;

// The steps whose compressed messages are measured.
struct SampledSteps {
  std::int64_t every = 0;     // steps whose number it divides; 0: none at all
  bool after_change = false;  // also kStepsToSettle steps after each plan's first step
};

// The same answer on all ranks, and in a run that was resumed, since the plans are the same.
// REQUIRES: plans from step 1 on, or none.
[[nodiscard]] bool is_sampled(const SampledSteps& sampled,
                              const PlanHistory& plans,
                              std::int64_t step);

}  // namespace slackline
