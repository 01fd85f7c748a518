#include "parallel/plan/sampled_steps.h"

namespace slackline {

bool is_sampled(const SampledSteps& sampled, const PlanHistory& plans, std::int64_t step) {
  if (sampled.every == 0 || plans.empty()) {
    return false;
  }
  const bool settled = step == plan_at(plans, step).from_step + kStepsToSettle;
  return step % sampled.every == 0 || (sampled.after_change && settled);
}

}  // namespace slackline
