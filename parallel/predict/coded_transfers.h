#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "parallel/plan/class_costs.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Holds what a plan makes of ops of passes, for a cost model that prices each by it: of gathers
// before a use, and of sums of what a pass has made. Sums at a step's end are not here: a timeline
// has their classes' costs. By place of the pipeline and bucket, or number of the op; all of its
// first tensor and data rank.
struct CodedTransfers {
  struct Sum {
    std::vector<CollectiveCall> calls{};
    CodecSeconds seconds{};
  };

  CodedGathers gathers{};
  std::map<std::pair<int, std::size_t>, CodecSeconds> gather_seconds{};  // for one use each
  std::map<std::pair<int, std::size_t>, Sum> sums{};
};

// Takes assumed costs for codecs that the costs do not know.
[[nodiscard]] CodedTransfers coded_transfers(const MeshLists& lists,
                                             const CompressionPlan& plan,
                                             const StepCosts& costs);

}  // namespace slackline
