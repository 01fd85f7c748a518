#pragma once

#include <vector>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// Append the receive of what a pass uses, or the send of what it makes, where there is one.
void append_receive(const Schedule& schedule, const Op& use, std::vector<Op>& ops);
void append_send(const Schedule& schedule, const Op& made, std::vector<Op>& ops);

// Passes that add transfers to ranks that hold compute ops only. Both keep the compute order.

// Asynchronous: a send right after the op that makes the data; a receive one forward or backward
// pass before its use, so that the data travels beside that pass and any weight part after it.
// Bounds: at most one forward input is on its way beyond those in flight, and a gradient's receive
// follows its own micro-batch's forward pass.
void post_receives_early(Schedule& schedule);

// Blocking: between two passes the sends of the first and the receives of the second, then `wait`.
// A forward and a backward pass in turn make one exchange; two passes of one direction a send and
// then a receive, each waited for. Interleaved ranks form a ring in which a lone send could wait
// for itself, so they make one exchange after each forward-backward pair. Weight parts run inside
// the exchange they stand at.
void pair_exchanges(Schedule& schedule);

}  // namespace slackline::schedule
