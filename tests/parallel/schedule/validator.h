#pragma once

#include <string>
#include <vector>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// Everything that is wrong with a schedule, one sentence each; none when it is sound. Checked:
//   1. every op stands on its chunk's rank and within the numbers of chunks and micro-batches
//   2. each micro-batch runs forward once and backward once on each chunk (whole, or as one input
//      and one weight part), and crosses each boundary once in each direction
//   3. a receive is posted before its use, a send after what it sends, a weight part after its
//      input part, a backward pass after its forward pass
//   4. backward passes and weight parts of a chunk run in ascending micro-batch order
//   5. sends and receives match in order, per pair of ranks and direction
//   6. no deadlock when a transfer ends only after both of its ends are posted, and an input slot
//      is taken only after what was sent from it has arrived
//   7. no rank holds more micro-batches than its kind's bound (in_flight_bound of formulas.h)
// Later checks are left out where earlier ones fail that they build on.
[[nodiscard]] std::vector<std::string> violations(const Schedule& schedule);

// The most micro-batches, counted per chunk, whose activations `rank` holds at once, by its list.
[[nodiscard]] int most_in_flight(const Schedule& schedule, int rank);

}  // namespace slackline::schedule
