#pragma once

#include <vector>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// Which buffer of its rank each micro-batch of a chunk uses. Slots come from lifetimes in the op
// list, never from a formula: a slot is taken at the first op of the lifetime, the lowest free one,
// and given back at its last. Chunks of one rank share its slots.
struct SlotMap {
  std::vector<int> num_slots{};           // per rank
  std::vector<std::vector<int>> slots{};  // [chunk][micro_batch]

  [[nodiscard]] int slot_of(int chunk, int micro_batch) const {
    return slots[static_cast<unsigned>(chunk)][static_cast<unsigned>(micro_batch)];
  }
};

// Slots for a chunk's input and activations: from the post of the input's receive (the forward pass
// where nothing is received) until the backward pass, or its weight part, is done. A rank that
// receives early needs one more of these than it has micro-batches in flight. A slot that goes from
// one chunk to another waits, before a receive is posted, for what was sent from it; interleaved
// ranks with blocking exchanges, a ring, would wait for each other in a circle, so there a slot is
// given back only when a wait has ended its sends.
[[nodiscard]] SlotMap input_slots(const Schedule& schedule);

}  // namespace slackline::schedule
