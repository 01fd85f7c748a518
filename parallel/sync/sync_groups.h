#pragma once

#include "core/comm/communicator.h"
#include "core/comm/hierarchy.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// A rank has a seat in each group that it adds and gathers with: how many ranks there are, and
// which of them it is.
struct Seat {
  int ranks = 1;
  int rank = 0;
};

// REQUIRES of a table's groups: the rank holds one of its copies.
[[nodiscard]] Seat seat_in(SyncGroup group, const SyncLayout& layout);

// The order in which a group's ranks are added: data ranks within a group first, then the groups.
[[nodiscard]] SumOrder order_over(SyncGroup group, const SyncLayout& layout);

// Which of a group's ranks stand together. Those of all but the data ranks and a table's holders
// stand in one group of data ranks, or each in another one.
[[nodiscard]] Hierarchy hierarchy_over(SyncGroup group, const SyncLayout& layout);

}  // namespace slackline
