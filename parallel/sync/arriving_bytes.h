#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/sync/sync_plan.h"

namespace slackline {

// The calls that a sum makes, one after another: its plain one, or those of a codec.
using CallsOf = std::function<std::vector<CollectiveCall>(const SyncOp&)>;

// Returns the bytes, in whole pages, that a step's sums receive into, where messages in the
// background are cut to `longest_message` bytes: each sum ends as late as the executor, which waits
// for a bucket's and for a slot's before it begins the next one, and windows of groups let it
// (SumWindow). Links that are faster than passes need less.
[[nodiscard]] std::size_t arriving_bytes(const SyncPlan& plan,
                                         const CallsOf& calls_of,
                                         std::size_t longest_message);

}  // namespace slackline
