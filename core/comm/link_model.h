#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/comm/cluster.h"

namespace slackline {

// When messages arrive over the links of a cluster. Every link serves one message at a time, first
// come, first served, for bytes / bytes_per_second, and the message arrives latency_seconds after
// its service. A link of a node has two ends that messages pass, the sender's and the receiver's;
// each is served on its own, so a message held up at the receiver's does not hold up the sender's.
//
// What links are busy until stands in `slots`, in nanoseconds of the steady clock: memory that all
// processes of this host may share. Threads and processes may call at the same time.
class LinkModel {
 public:
  using Clock = std::chrono::steady_clock;
  using Slot = std::atomic<std::int64_t>;
  static_assert(Slot::is_always_lock_free);

  // REQUIRES: slots start at 0, num_slots() of them, and outlive this; ranks fit on the cluster.
  LinkModel(Cluster cluster, int ranks, std::span<Slot> slots);

  [[nodiscard]] static std::size_t num_slots(const Cluster& cluster, int ranks);

  // Takes the links from rank `from` to rank `to` for a message; says when it arrives.
  [[nodiscard]] Clock::time_point carry(int from, int to, std::size_t bytes, Clock::time_point now);

 private:
  [[nodiscard]] std::int64_t serve(std::size_t slot, std::int64_t ready, std::int64_t duration);
  [[nodiscard]] std::size_t pair_slot(int from, int to, bool duplex) const;

  Cluster cluster_;
  std::size_t ranks_;
  std::vector<int> nodes_;
  std::span<Slot> slots_;
};

}  // namespace slackline
