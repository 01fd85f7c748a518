#pragma once

#include "core/comm/links/cluster.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// What the costs of a data axis depend on that sums each gradient over all data ranks once, and
// gathers each weight once where updates are shared out.
struct SummedAxis {
  const MeshLists* lists = nullptr;
  const StepCosts* costs = nullptr;
  const Cluster* links = nullptr;  // null: measured seconds count, or transfers take no time
  bool stages_fit = false;         // measured seconds of virtual stages are of this layout
};

// Adds the sums of buckets and the gathers of weights to the chunks of a cost model, and the tied
// table's to the step, where it stands on two stages.
void add_summed_axis(const SummedAxis& axis, schedule::CostModel& model);

}  // namespace slackline
