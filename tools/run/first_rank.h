#pragma once

#include <functional>

#include "core/comm/communicator.h"

namespace slackline {

// Runs file work on rank 0 and tells all ranks how it ended: where it throws FileError, all ranks
// throw the same AgreedError. All ranks call it.
void on_first_rank(Communicator& world, const std::function<void()>& work);

}  // namespace slackline
