#include "core/comm/hierarchy.h"

namespace slackline {

bool Hierarchy::is_flat() const {
  return layout == Layout::rank_major && sequential_from == kNever && overlapped_from == kNever;
}

bool Hierarchy::fits(int size) const {
  return ranks_in_group >= 1 && size % ranks_in_group == 0;
}

Slice Hierarchy::slice(std::size_t n, int rank, int size) const {
  if (layout == Layout::rank_major) {
    return slice_of(n, rank, size);
  }
  const Slice of_place = slice_of(n, rank % ranks_in_group, ranks_in_group);
  const Slice own = slice_of(of_place.count(), rank / ranks_in_group, num_groups(size));
  return {of_place.begin + own.begin, of_place.begin + own.end};
}

Hierarchy::Way Hierarchy::way_of_gather(std::size_t bytes, int size) const {
  if (ranks_in_group == 1 || ranks_in_group == size) {
    return Way::direct;
  }
  if (overlapped_from != kNever && bytes >= overlapped_from) {
    return Way::overlapped;
  }
  return sequential_from != kNever && bytes >= sequential_from ? Way::sequential : Way::direct;
}

Hierarchy::Way Hierarchy::way_of_sum(std::size_t bytes, int size, SumOrder order) const {
  const bool adds_groups = order.runs[0] * order.runs[1] == ranks_in_group;
  return adds_groups ? way_of_gather(bytes, size) : Way::direct;
}

}  // namespace slackline
