#pragma once

#include "model/parameters.h"
#include "parallel/step/groups.h"

namespace slackline {

// Compares what several ranks must have alike with the first of them, bit for bit: every weight
// over the data ranks, what is not cut over the tensor ranks, and a tied table on its two stages.
// Throws Error on a rank that differs, naming parameter, element and both values. For debugging:
// every weight travels. Blocks; all ranks call alike, when no weight is on its way.
void check_sync(const Parameters& parameters, Groups& groups);

}  // namespace slackline
