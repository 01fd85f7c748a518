#pragma once

#include <vector>

#include "parallel/mesh/rank_plan.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

// Units in the order in which the passes of a rank's last micro-batch make their gradients.
[[nodiscard]] std::vector<GradientBucket::Unit> units_as_made(const RankPlan& rank);

// Units in the order in which a rank's passes read their weights, each as often as they do: of a
// step, or of an evaluation. Heads are read by backward passes, which make the loss, and by
// evaluation.
[[nodiscard]] std::vector<GradientBucket::Unit> units_as_used(const RankPlan& rank, bool evaluates);

}  // namespace slackline
