#pragma once

#include "parallel/plan/compression_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/predict/timeline/timeline.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Predicts a job's step, with what the plan compresses. Codecs that were not measured take what is
// assumed.
[[nodiscard]] schedule::Timeline predicted_timeline(const MeshLists& lists,
                                                    const StepCosts& costs,
                                                    const LinkSpeeds& links,
                                                    const CompressionPlan& plan = {});

}  // namespace slackline
