#pragma once

#include <string>
#include <vector>

#include "parallel/mesh/parallel_config.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// What is wrong with the sync plans of all ranks of a mesh, in order of ranks, a sentence each;
// nothing where they are sound:
//   - the ranks of a group submit the same collectives in the same order,
//   - the gradients that a rank's optimizer reads are the sum of each rank's that makes some, once:
//     the data ranks', both ends' of a tied table, and of norms under sequence parallelism the
//     tensor ranks', and it has them: a reduce_scatter leaves each rank its slice, until an
//     all_gather,
//   - each weight that a rank holds is updated by it, or by one rank it is gathered from, and
//     a pass that reads weights it does not hold gathers them from a rank that does.
[[nodiscard]] std::vector<std::string> violations(const std::vector<SyncPlan>& plans,
                                                  const ParallelConfig& parallel);

}  // namespace slackline
