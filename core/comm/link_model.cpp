#include "core/comm/link_model.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

constexpr double kNanoseconds = 1e9;  // in a second
// Slots of a node: its way out and in, and what its own ranks share.
constexpr std::size_t kOut = 0;
constexpr std::size_t kIn = 1;
constexpr std::size_t kInside = 2;
constexpr std::size_t kSlotsOfNode = 3;

}  // namespace

LinkModel::LinkModel(Cluster cluster, int ranks, std::span<Slot> slots)
    : cluster_(std::move(cluster)),
      ranks_(static_cast<std::size_t>(ranks)),
      nodes_(cluster_.nodes_of_ranks(ranks)),
      slots_(slots) {
  SL_CHECK_EQ(slots_.size(), num_slots(cluster_, ranks));
}

// Of every ordered pair of ranks, then of every node.
std::size_t LinkModel::num_slots(const Cluster& cluster, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  const auto nodes = static_cast<std::size_t>(cluster.node_of(ranks - 1)) + 1;
  return count * count + nodes * kSlotsOfNode;
}

std::size_t LinkModel::pair_slot(int from, int to, bool duplex) const {
  if (!duplex && from > to) {
    std::swap(from, to);
  }
  return static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to);
}

// Returns when the service ends.
std::int64_t LinkModel::serve(std::size_t slot, std::int64_t ready, std::int64_t duration) {
  Slot& busy_until = slots_[slot];
  std::int64_t seen = busy_until.load();
  std::int64_t end = 0;
  do {
    end = std::max(seen, ready) + duration;
  } while (!busy_until.compare_exchange_weak(seen, end));
  return end;
}

LinkModel::Clock::time_point LinkModel::carry(int from,
                                              int to,
                                              std::size_t bytes,
                                              Clock::time_point now) {
  const int from_node = nodes_[static_cast<std::size_t>(from)];
  const int to_node = nodes_[static_cast<std::size_t>(to)];
  const bool inside = from_node == to_node;
  const Cluster::Link& link = inside ? cluster_.node_link : cluster_.network_link;
  const double seconds =
      link.bytes_per_second > 0.0 ? static_cast<double>(bytes) / link.bytes_per_second : 0.0;
  const auto duration = static_cast<std::int64_t>(seconds * kNanoseconds);
  const auto latency = static_cast<std::int64_t>(link.latency_seconds * kNanoseconds);
  const auto ready =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  const auto node_slot = [&](int node, std::size_t which) {
    return ranks_ * ranks_ + static_cast<std::size_t>(node) * kSlotsOfNode + which;
  };
  std::int64_t end = 0;
  if (link.shared_by == Cluster::SharedBy::pair) {
    end = serve(pair_slot(from, to, link.duplex), ready, duration);
  } else if (inside) {
    end = serve(node_slot(from_node, kInside), ready, duration);
  } else {
    const std::int64_t out = serve(node_slot(from_node, kOut), ready, duration);
    end = serve(node_slot(to_node, link.duplex ? kIn : kOut), out - duration, duration);
  }
  return Clock::time_point(std::chrono::nanoseconds(end + latency));
}

}  // namespace slackline
