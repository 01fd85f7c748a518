#pragma once

#include <map>

#include "parallel/plan/cost_model.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Predicts a job's step. Transfers of classes that are not in `compressed` travel plain.
[[nodiscard]] schedule::Seconds predicted_step(
    const MeshLists& lists,
    const StepCosts& costs,
    const LinkSpeeds& links,
    const std::map<schedule::TransferClass, schedule::ClassCost>& compressed = {});

}  // namespace slackline
