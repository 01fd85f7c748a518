#pragma once

#include "parallel/step/bucket_memory.h"
#include "parallel/step/groups.h"

namespace slackline {

// Compares what several ranks must have alike with the first of them, bit for bit: weights over the
// data ranks that hold the same of them, what is not cut over the tensor ranks, and a tied table on
// its two stages. Throws Error on a rank that differs, naming parameter, element and both values.
// For debugging: every weight travels. Blocks; all ranks call alike, when no weight is on its way.
void check_sync(const SyncPlan& plan,
                const BucketMemory& memory,
                const DataStrategy& strategy,
                Groups& groups);

}  // namespace slackline
