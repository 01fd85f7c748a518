#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/comm/collective_bytes.h"
#include "parallel/plan/coded_gather.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Holds the calls that a plan makes of ops of passes, for a cost model that prices each by them: of
// gathers before a use, and of sums of what a pass has made. Sums at a step's end are not here: a
// timeline has their classes' costs. By place of the pipeline and bucket, or number of the op; both
// of its first tensor and data rank.
struct CodedTransfers {
  CodedGathers gathers{};
  std::map<std::pair<int, std::size_t>, std::vector<CollectiveCall>> sums{};
};

[[nodiscard]] CodedTransfers coded_transfers(const MeshLists& lists, const CompressionPlan& plan);

}  // namespace slackline
