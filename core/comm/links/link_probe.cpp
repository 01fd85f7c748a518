#include "core/comm/links/link_probe.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace slackline {

namespace {

constexpr TransferNote kNote{.what = "probe of a link"};
// A small message goes there and back until this often, or for this long.
constexpr int kRoundTrips = 20;
constexpr double kRoundTripSeconds = 0.2;
constexpr int kRepeats = 2;  // of a large one
// Large messages grow until one takes this long beside the latency, or is this large.
constexpr double kLongEnough = 0.02;  // seconds
constexpr double kFastestGrowth = 8.0;
constexpr std::size_t kLargest = std::size_t{8} << 20U;
constexpr std::size_t kFirst = std::size_t{16} << 10U;
// Slower by this factor: together instead of side by side.
constexpr double kShared = 1.5;

using Pair = std::pair<int, int>;  // ranks: the first one sends

enum class Way { there, both_at_once, there_and_back };

// All ranks call alike; those outside the pairs only meet the others at the barriers.
class Prober {
 public:
  explicit Prober(Communicator& world) : world_(&world) {}

  // Measures the link that the pairs use: the first alone, then all of them at once.
  [[nodiscard]] Cluster::Link probe(const std::vector<Pair>& pairs) {
    const std::vector<Pair> first = {pairs.front()};
    Cluster::Link link{.source = "measured"};
    link.latency_seconds = 0.5 * quickest_round_trip(first);
    answer_seconds_ = link.latency_seconds;
    const auto [bytes, one] = message_that_takes_long_enough(first);
    const double seconds = std::min(one, seconds_of(first, bytes, kRepeats, Way::there));
    const double shortest = 1e-9;
    link.bytes_per_second =
        static_cast<double>(bytes) / std::max(shortest, seconds - link.latency_seconds);
    const double limit =
        link.latency_seconds + kShared * std::max(0.0, seconds - link.latency_seconds);
    link.duplex = seconds_of(first, bytes, kRepeats, Way::both_at_once) < limit;
    const bool shared = pairs.size() > 1 && seconds_of(pairs, bytes, kRepeats, Way::there) > limit;
    link.shared_by = shared ? Cluster::SharedBy::node : Cluster::SharedBy::pair;
    return link;
  }

 private:
  double quickest_round_trip(const std::vector<Pair>& pairs) {
    double quickest = std::numeric_limits<double>::infinity();
    double all = 0.0;
    for (int i = 0; i < kRoundTrips && all < kRoundTripSeconds; ++i) {
      const double seconds = seconds_of(pairs, 1, 1, Way::there_and_back);
      quickest = std::min(quickest, seconds);
      all += seconds;
    }
    return quickest;
  }

  struct Timed {
    std::size_t bytes = 0;
    double seconds = 0.0;
  };

  // One message of each size: the last one's speed says how much larger the next one may be.
  Timed message_that_takes_long_enough(const std::vector<Pair>& pairs) {
    std::size_t bytes = kFirst;
    double seconds = seconds_of(pairs, bytes, 1, Way::there);
    // The latency of a small message and of its answer are the same.
    const auto too_short = [&] { return seconds - answer_seconds_ < kLongEnough; };
    while (too_short() && bytes < kLargest) {
      const double service = std::max(1e-9, seconds - answer_seconds_);
      const double growth = std::clamp(1.25 * kLongEnough / service, 1.25, kFastestGrowth);
      bytes = std::min(kLargest, static_cast<std::size_t>(growth * static_cast<double>(bytes)));
      seconds = seconds_of(pairs, bytes, 1, Way::there);
    }
    return {.bytes = bytes, .seconds = seconds};
  }

  // The quickest of `times` messages of the slowest pair, on every rank.
  double seconds_of(const std::vector<Pair>& pairs, std::size_t bytes, int times, Way way) {
    out_.resize(std::max(out_.size(), bytes));
    in_.resize(std::max(in_.size(), bytes));
    double quickest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
      world_->barrier(kNote).wait();
      quickest = std::min(quickest, slowest(pairs, bytes, way));
    }
    return quickest;
  }

  double slowest(const std::vector<Pair>& pairs, std::size_t bytes, Way way) {
    const Shape shape{static_cast<std::int64_t>(bytes)};
    const Tensor out(out_.data(), DType::u8, shape);
    const Tensor in(in_.data(), DType::u8, shape);
    const bool both = way == Way::both_at_once;
    std::vector<double> seconds(static_cast<std::size_t>(world_->size()), 0.0);
    for (const auto& [from, to] : pairs) {
      const bool sends = world_->rank() == from;
      if (!sends && world_->rank() != to) {
        continue;
      }
      const int peer = sends ? to : from;
      const double begin = world_->now();
      Transfer sent = sends || both ? world_->send(out, peer, kNote) : Transfer{};
      double received = 0.0;
      if (!sends || both) {
        world_->receive(in, peer, kNote).wait();
        received = world_->now() - begin;
      }
      sent.wait();
      // A message has arrived when the other end says so, in a small one.
      const Tensor answer = in.rows(0, 1);
      (sends ? world_->receive(answer, peer, kNote) : world_->send(answer, peer, kNote)).wait();
      const double answered =
          world_->now() - begin - (way == Way::there_and_back ? 0.0 : answer_seconds_);
      // The later of two messages at once counts. Its receiver knows when it came; the sender of
      // the other one may have its answer before that.
      seconds[static_cast<std::size_t>(world_->rank())] =
          both ? std::max(answered, received) : answered;
    }
    world_->all_gather(Tensor(std::span(seconds)), kNote).wait();
    return *std::max_element(seconds.begin(), seconds.end());
  }

  Communicator* world_;
  double answer_seconds_ = 0.0;  // the way back of a small message
  std::vector<std::uint8_t> out_;
  std::vector<std::uint8_t> in_;
};

// The ranks of each node, by node.
std::vector<std::vector<int>> ranks_of_nodes(const Communicator& world) {
  std::vector<std::vector<int>> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto node = static_cast<std::size_t>(world.nodes()[static_cast<std::size_t>(rank)]);
    ranks.resize(std::max(ranks.size(), node + 1));
    ranks[node].push_back(rank);
  }
  return ranks;
}

// Neighbours on the first node that has any.
std::vector<Pair> pairs_inside(const std::vector<std::vector<int>>& nodes) {
  std::vector<Pair> pairs;
  for (const std::vector<int>& ranks : nodes) {
    for (std::size_t i = 0; i + 1 < ranks.size() && (pairs.empty() || i > 0); i += 2) {
      pairs.emplace_back(ranks[i], ranks[i + 1]);
    }
    if (!pairs.empty()) {
      break;
    }
  }
  return pairs;
}

// Each rank of the first node with one of the second.
std::vector<Pair> pairs_between(const std::vector<std::vector<int>>& nodes) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; nodes.size() > 1 && i < std::min(nodes[0].size(), nodes[1].size()); ++i) {
    pairs.emplace_back(nodes[0][i], nodes[1][i]);
  }
  return pairs;
}

}  // namespace

Cluster probe_links(Communicator& world) {
  const std::vector<std::vector<int>> nodes = ranks_of_nodes(world);
  Cluster cluster;
  for (const std::vector<int>& ranks : nodes) {
    cluster.nodes.push_back({.count = 1, .devices = static_cast<int>(ranks.size())});
  }
  Prober prober(world);
  const std::vector<Pair> inside = pairs_inside(nodes);
  const std::vector<Pair> between = pairs_between(nodes);
  if (!inside.empty()) {
    cluster.node_link = prober.probe(inside);
    cluster.network_link = cluster.node_link;
  }
  if (!between.empty()) {
    cluster.network_link = prober.probe(between);
    cluster.node_link = inside.empty() ? cluster.network_link : cluster.node_link;
  }
  return cluster;
}

}  // namespace slackline
