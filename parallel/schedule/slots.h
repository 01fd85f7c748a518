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

// Activations: from the forward pass until the backward pass, or its weight part, is done.
[[nodiscard]] SlotMap activation_slots(const Schedule& schedule);

// Inputs of a chunk: from the post of their receive (the forward pass where nothing is received)
// until the backward pass, or its weight part, is done. A rank that receives early holds one more
// of these than activations. A slot that goes from one chunk to another waits, before a receive is
// posted, for what was sent from it; interleaved ranks with blocking exchanges, a ring, would wait
// for each other in a circle, so there a slot is given back only when a wait has ended its sends.
[[nodiscard]] SlotMap input_slots(const Schedule& schedule);

}  // namespace slackline::schedule
