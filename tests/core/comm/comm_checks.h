#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"

namespace slackline::testing {

// Checks that run as one rank of a communicator of any size, over any transport. They throw
// std::runtime_error that says what is wrong, since assertions of the test library are not for
// threads. All inputs are the same on every machine, all comparisons are of bits.
struct CommCheck {
  std::string claim;
  std::function<void(Communicator&)> run;
};

[[nodiscard]] const std::vector<CommCheck>& comm_checks();

// The checks among them that are about the work that transfers take with them.
[[nodiscard]] const std::vector<CommCheck>& work_checks();

// Throws "rank R of N: <what>" unless `good`.
void expect(bool good, const Communicator& comm, const std::string& what);

}  // namespace slackline::testing
