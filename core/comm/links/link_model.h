#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/comm/links/cluster.h"

namespace slackline {

// When messages arrive over the links of a cluster. Every link serves one message at a time, first
// come, first served, for bytes / bytes_per_second, and the message arrives latency_seconds after
// its service. A link of a node has two ends that messages pass, the sender's and the receiver's;
// each is served on its own, so a message held up at the receiver's does not hold up the sender's.
// So a message calls twice: depart(), and when that time has come arrive(), for at the receiver's
// end it stands behind what has reached it by then.
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

  struct Passage {
    int from = 0;  // ranks
    int to = 0;
    std::size_t bytes = 0;
  };

  // Takes the sender's end; says when the message begins to reach the receiver's. A link with one
  // end is all the receiver's.
  [[nodiscard]] Clock::time_point depart(const Passage& passage, Clock::time_point now);

  // Takes the receiver's end for a message that has reached it; says when all of it has arrived.
  [[nodiscard]] Clock::time_point arrive(const Passage& passage, Clock::time_point reached);

 private:
  [[nodiscard]] Cluster::Scope scope_of(const Passage& passage) const;
  [[nodiscard]] bool has_two_ends(const Passage& passage) const;
  [[nodiscard]] std::size_t receiving_slot(const Passage& passage) const;
  [[nodiscard]] std::size_t node_slot(int rank, std::size_t which) const;
  [[nodiscard]] Clock::time_point serve(std::size_t slot,
                                        Clock::time_point ready,
                                        std::chrono::nanoseconds duration);
  [[nodiscard]] std::size_t pair_slot(int from, int to, bool duplex) const;

  Cluster cluster_;
  std::size_t ranks_;
  std::vector<int> nodes_;
  std::span<Slot> slots_;
};

}  // namespace slackline
