#include "core/comm/links/link_model.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace slackline {

namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// Slots of a node: its ways out and in, to nodes of its switch and to others, and what its own
// ranks share.
constexpr std::size_t kInside = 0;
constexpr std::size_t kSlotsOfNode = 5;

std::size_t way_out(Cluster::Scope scope) {
  return scope == Cluster::Scope::network ? 1 : 3;
}

std::size_t way_in(Cluster::Scope scope) {
  return way_out(scope) + 1;
}

nanoseconds whole_nanoseconds(double seconds) {
  return duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

nanoseconds service_time(const Cluster::Link& link, std::size_t bytes) {
  return link.bytes_per_second > 0.0
             ? whole_nanoseconds(static_cast<double>(bytes) / link.bytes_per_second)
             : nanoseconds(0);
}

}  // namespace

LinkModel::LinkModel(Cluster cluster, int ranks, std::span<Slot> slots)
    : cluster_(std::move(cluster)),
      ranks_(static_cast<std::size_t>(ranks)),
      nodes_(cluster_.nodes_of_ranks(ranks)),
      slots_(slots) {
  SL_CHECK_EQ(slots_.size(), num_slots(cluster_, ranks));
}

// Every ordered pair of ranks has a slot; those of the nodes follow.
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
LinkModel::Clock::time_point LinkModel::serve(std::size_t slot,
                                              Clock::time_point ready,
                                              nanoseconds duration) {
  Slot& busy_until = slots_[slot];
  const std::int64_t earliest = duration_cast<nanoseconds>(ready.time_since_epoch()).count();
  std::int64_t seen = busy_until.load();
  std::int64_t end = 0;
  do {
    end = std::max(seen, earliest) + duration.count();
  } while (!busy_until.compare_exchange_weak(seen, end));
  return Clock::time_point(nanoseconds(end));
}

Cluster::Scope LinkModel::scope_of(const Passage& passage) const {
  return cluster_.scope_between(nodes_[static_cast<std::size_t>(passage.from)],
                                nodes_[static_cast<std::size_t>(passage.to)]);
}

bool LinkModel::has_two_ends(const Passage& passage) const {
  const Cluster::Scope scope = scope_of(passage);
  return scope != Cluster::Scope::node &&
         cluster_.link_of(scope).shared_by == Cluster::SharedBy::node;
}

std::size_t LinkModel::node_slot(int rank, std::size_t which) const {
  const auto node = static_cast<std::size_t>(nodes_[static_cast<std::size_t>(rank)]);
  return ranks_ * ranks_ + node * kSlotsOfNode + which;
}

std::size_t LinkModel::receiving_slot(const Passage& passage) const {
  const Cluster::Scope scope = scope_of(passage);
  const Cluster::Link& link = cluster_.link_of(scope);
  if (link.shared_by == Cluster::SharedBy::pair) {
    return pair_slot(passage.from, passage.to, link.duplex);
  }
  if (!has_two_ends(passage)) {
    return node_slot(passage.from, kInside);
  }
  return node_slot(passage.to, link.duplex ? way_in(scope) : way_out(scope));
}

LinkModel::Clock::time_point LinkModel::depart(const Passage& passage, Clock::time_point now) {
  if (!has_two_ends(passage)) {
    return now;
  }
  const Cluster::Scope scope = scope_of(passage);
  const nanoseconds service = service_time(cluster_.link_of(scope), passage.bytes);
  return serve(node_slot(passage.from, way_out(scope)), now, service) - service;
}

LinkModel::Clock::time_point LinkModel::arrive(const Passage& passage, Clock::time_point reached) {
  const Cluster::Link& link = cluster_.link_of(scope_of(passage));
  return serve(receiving_slot(passage), reached, service_time(link, passage.bytes)) +
         whole_nanoseconds(link.latency_seconds);
}

}  // namespace slackline
