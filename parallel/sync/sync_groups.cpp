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
  const int data_ranks = layout.data_ranks_of_group;
  switch (group) {
    case SyncGroup::table:
      return {.runs = {2, data_ranks}};
    case SyncGroup::data:
      return {.runs = {data_ranks, 1}};
    case SyncGroup::tensor:
    case SyncGroup::group:
    case SyncGroup::across_groups:
    case SyncGroup::table_pair:
      break;
  }
  return SumOrder::ranks;
}

Hierarchy hierarchy_over(SyncGroup group, const SyncLayout& layout) {
  switch (group) {
    case SyncGroup::data:
      return layout.data_hierarchy;
    case SyncGroup::table:
      return layout.table_hierarchy;
    case SyncGroup::across_groups:
      return {};
    case SyncGroup::tensor:
    case SyncGroup::group:
    case SyncGroup::table_pair:
      break;
  }
  return {.ranks_in_group = seat_in(group, layout).ranks};
}

}  // namespace slackline
