#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/hierarchy.h"

namespace slackline::testing {

// Returns all ranks of the communicator, as group() takes them.
[[nodiscard]] inline std::vector<int> everyone(const Communicator& comm) {
  std::vector<int> members(static_cast<std::size_t>(comm.size()));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// Returns a hierarchy through which every message goes in this way, however short it is.
[[nodiscard]] inline Hierarchy hierarchy_of(int ranks_in_group, Hierarchy::Way way) {
  Hierarchy hierarchy{.ranks_in_group = ranks_in_group};
  (way == Hierarchy::Way::overlapped ? hierarchy.overlapped_from : hierarchy.sequential_from) = 0;
  return hierarchy;
}

}  // namespace slackline::testing
