#include "parallel/sync/sync_groups.h"

namespace slackline {

Seat seat_in(SyncGroup group, const SyncLayout& layout) {
  const MeshPlace& at = layout.place;
  const int copy = at.pipeline == 0 ? 0 : 1;  // of a table on two stages: copies alternate
  switch (group) {
    case SyncGroup::tensor:
      return {layout.tensor_size, at.tensor};
    case SyncGroup::data:
      return {layout.data_size, at.data};
    case SyncGroup::group:
      return {layout.data_ranks_of_group, at.data % layout.data_ranks_of_group};
    case SyncGroup::across_groups:
      return {layout.data_size / layout.data_ranks_of_group, at.data / layout.data_ranks_of_group};
    case SyncGroup::table:
      return {2 * layout.data_size, 2 * at.data + copy};
    case SyncGroup::table_pair:
      break;
  }
  return {2, copy};
}

SumOrder order_over(SyncGroup group, const SyncLayout& layout) {
  if (group == SyncGroup::table) {
    return {.runs = {2, layout.data_ranks_of_group}};
  }
  return group == SyncGroup::data ? SumOrder{.runs = {layout.data_ranks_of_group, 1}}
                                  : SumOrder::ranks;
}

Hierarchy hierarchy_over(SyncGroup group, const SyncLayout& layout) {
  if (group == SyncGroup::data) {
    return layout.data_hierarchy;
  }
  if (group == SyncGroup::table) {
    return layout.table_hierarchy;
  }
  const bool apart = group == SyncGroup::across_groups;
  return apart ? Hierarchy() : Hierarchy{.ranks_in_group = seat_in(group, layout).ranks};
}

}  // namespace slackline
