#include "core/comm/hierarchy.h"

namespace slackline {

bool Hierarchy::is_flat() const {
  return sequential_from == kNever && overlapped_from == kNever;
}

bool Hierarchy::fits(int size) const {
  return ranks_in_group >= 1 && size % ranks_in_group == 0;
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
