#pragma once

#include "parallel/plan/compression_plan.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Predicts a job's step with its transfers plain, or as a plan makes them.
[[nodiscard]] schedule::Seconds predicted_step(const MeshLists& lists,
                                               const StepCosts& costs,
                                               const LinkSpeeds& links,
                                               const CompressionPlan* plan = nullptr);

}  // namespace slackline
