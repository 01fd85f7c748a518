#pragma once

#include "core/comm/links/network_config.h"
#include "parallel/mesh/parallel_config.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

// Decides network.collectives where that is not decided yet: from which sizes on sums and gathers
// over several groups of data ranks go through the groups, for the run and for its plan. A function
// of config and links alone, which all ranks have alike; it changes no bit of a result.
//
//   direct        nothing does
//   hierarchical  everything does, sequentially or overlapped, whichever takes less by the links;
//                 without links tensors of 8 MiB and more are overlapped
//   automatic     what takes less than directly; nothing without links
//
// One group, and groups of one rank, have nothing to go through. REQUIRES: the size of groups is
// decided; the cluster has a device for every rank.
[[nodiscard]] ParallelConfig with_collectives(ParallelConfig config,
                                              CollectivesWish wish,
                                              const LinkSpeeds& links);

}  // namespace slackline
