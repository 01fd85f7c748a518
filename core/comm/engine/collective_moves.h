#pragma once

#include <memory>

#include "core/comm/communicator.h"
#include "core/comm/engine/moves.h"
#include "core/comm/engine/scratch_pool.h"
#include "core/comm/hierarchy.h"

namespace slackline {

// Returns how rank `rank` of `size` >= 2 moves the data of a collective: directly, or through
// groups where the hierarchy has it so. Sends of nothing are left out on both sides. A tensor that
// stands for a larger one (TransferNote) goes the larger one's way. Bytes each rank sends, and
// scratch: collective_bytes.h. REQUIRES: hierarchy.fits(size).
//
// Sums and gathers. No growing sum is forwarded: a slice goes to the rank that adds it, so that
// every sum has its order. Rank (j, r) stands at place r of group j; c(b, r) is the slice of rank
// (b, r). To go directly is to have one group, of all ranks, inside which everything moves. There
// an all-reduce for which exchanges_all() holds takes the whole tensor for each rank's slice: all
// ranks send all of it to all and add, and nothing is left to gather.
//
// Overlapped, a reduction over g groups has steps k = 0 .. g - 1:
//   inside the group, slices of block b = j + 1 + k (mod g) go to the place of their owner, and
//   rank (j, r) adds up c(b, r);
//   between groups, for k > 0, it sends the sum of the block before, c(j + k, r), to its owner and
//   receives the sum of its own slice from group j - k.
// In the last step b = j, and the groups' sums are added in their order. A gather has steps
// k = 0 .. g - 1 too:
//   between groups, for k < g - 1, rank (j, r) sends its slice to group j + k + 1 and receives
//   c(j - k - 1, r);
//   inside the group, c(j - k, r), which came in the step before, goes to all places.
// Sequential, the parts of a reduction inside the group are one step, and those between are
// another; of a gather the other way round.
//
// The others go directly. A broadcast of up to kTreeBytes is a binomial tree; above, slice r goes
// to rank r, which sends it to the others. A barrier is a dissemination: in round k each rank sends
// a message to the rank 2^k further on.
[[nodiscard]] Moves moves_of(const Operation& collective,
                             int rank,
                             int size,
                             const std::shared_ptr<ScratchPool>& pool,
                             const Hierarchy& hierarchy);

}  // namespace slackline
