#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "tests/core/comm/comm_checks.h"

namespace slackline::testing {

// Checks of sums and gathers that go through groups, as one rank of a communicator of any size. For
// every number of ranks that groups of it may have, those that follow; the one below for one
// number.
[[nodiscard]] const std::vector<CommCheck>& hierarchy_checks();

// Over every way: bits of direct calls, right elements, bytes by the formulas.
// REQUIRES: groups of so many ranks fit the communicator.
void check_groups_of(Communicator& comm, int ranks_in_group);

}  // namespace slackline::testing
