#pragma once

#include "core/comm/links/cluster.h"
#include "parallel/plan/cost_model.h"
#include "parallel/predict/coded_transfers.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Adds the data axis of a strategy that shares out passes or has groups to a cost model whose
// chunks have their computing: what a pass waits for the weights of its layers, which are gathered
// while the layer before works, and for gradients on their way to their owners; and the sums and
// gathers at the step's end, a bucket's one after another. Each op costs what its group's links
// take. What `coded` has travels as it says, all else plain.
void add_shared_axis(const MeshLists& lists,
                     const Cluster& cluster,
                     const CodedTransfers& coded,
                     schedule::CostModel& model);

}  // namespace slackline
