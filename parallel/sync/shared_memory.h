#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "parallel/sync/sync_plan.h"

namespace slackline {

// Bytes of what a rank holds where data ranks share memory out (SyncLayout::shares_memory): its
// shares for the run, each beginning on a cache line, and slots that are whole for a pass.
struct SharedMemory {
  std::size_t f32_weights = 0;     // norms and biases; all weights where passes read f32
  std::size_t bf16_weights = 0;    // as passes read them
  std::size_t masters = 0;         // f32, of bf16 weights that this rank updates
  std::size_t bias_copies = 0;     // bf16
  std::size_t gradients = 0;       // f32
  std::size_t input_gradient = 0;  // of a tied table with both ends here, or this rank's share
  // By slot: as long as the longest bucket that uses it.
  std::map<std::size_t, std::size_t> weight_slots{};
  std::map<std::size_t, std::size_t> gradient_slots{};

  // Where a bucket's part begins in each of these.
  struct Offsets {
    std::size_t weights = 0;  // of its type
    std::size_t masters = 0;
    std::size_t gradients = 0;
    std::size_t bias_copies = 0;
  };

  std::vector<Offsets> offsets{};  // of buckets

  [[nodiscard]] std::size_t slots() const;
};

[[nodiscard]] SharedMemory shared_memory(const SyncPlan& plan);

// Whether both gradients of a tied table are made on this rank.
[[nodiscard]] bool has_both_ends(const SyncPlan& plan, std::size_t bucket);

}  // namespace slackline
