#pragma once

#include "core/comm/links/cluster.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// The costs of a data axis depend on these.
struct DataAxis {
  const MeshLists* lists = nullptr;
  const StepCosts* costs = nullptr;
  const Cluster* links = nullptr;         // null: measured seconds count, or transfers take no time
  const CompressionPlan* plan = nullptr;  // for sums and gathers of passes
  bool stages_fit = false;                // measured seconds of virtual stages are of this layout
};

// Adds the data axis to a cost model whose chunks have their computing, op by op of the sync plans:
// what a pass waits for the weights of its layers, which are gathered while the layer before works,
// and for gradients on their way to their owners; the sums and gathers at the step's end, a
// bucket's one after another; and those of a tied table on two stages, the step's own. Each op
// costs what its group's links take. Those of passes travel, and are coded, as `plan` says, all
// else is plain. Where no links are known, strategies that share out passes or have groups cost
// nothing.
void add_data_axis(const DataAxis& axis, schedule::CostModel& model);

}  // namespace slackline
