#include "core/comm/links/link_probe.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/forwarding_communicator.h"
#include "core/comm/links/link_model.h"
#include "core/comm/world.h"
#include "tests/support/catch.h"
#include "tests/support/unowned.h"

namespace slackline::testing {

namespace {

using SharedBy = Cluster::SharedBy;

constexpr int kRanks = 4;

// Two nodes of two ranks.
Cluster links_of(SharedBy shared_by, bool duplex) {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 2}};
  cluster.node_link = {.latency_seconds = 1e-3, .bytes_per_second = 40e6};
  cluster.network_link = {
      .latency_seconds = 8e-3, .bytes_per_second = 4e6, .duplex = duplex, .shared_by = shared_by};
  return cluster;
}

// What the messages of a simulated world have in common: its links, and when each one that is on
// the way arrives, in seconds.
class SimulatedLinks {
 public:
  explicit SimulatedLinks(const Cluster& cluster)
      : slots_(LinkModel::num_slots(cluster, kRanks)), model_(cluster, kRanks, slots_) {}

  void send(const LinkModel::Passage& passage, double now) {
    using Clock = LinkModel::Clock;
    const Clock::time_point begin(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(now)));
    const std::scoped_lock lock(mutex_);
    const Clock::time_point arrival = model_.arrive(passage, model_.depart(passage, begin));
    on_the_way_[{passage.from, passage.to}].push_back(
        std::chrono::duration<double>(arrival.time_since_epoch()).count());
  }

  // When the first message of those on the way between two ranks arrives. REQUIRES: there is one.
  [[nodiscard]] double receive(int from, int to) {
    const std::scoped_lock lock(mutex_);
    std::deque<double>& messages = on_the_way_.at({from, to});
    const double arrival = messages.front();
    messages.pop_front();
    return arrival;
  }

 private:
  std::mutex mutex_;
  std::vector<LinkModel::Slot> slots_;
  LinkModel model_;
  std::map<std::pair<int, int>, std::deque<double>> on_the_way_;
};

// Moves data as the world that it wraps does. Its clock is simulated: messages take what their
// links take and nothing else takes any time, however busy the machine is.
class SimulatedTime : public ForwardingCommunicator {
 public:
  SimulatedTime(Communicator& real, SimulatedLinks& links, std::vector<int> nodes)
      : ForwardingCommunicator(unowned(real)), links_(&links), nodes_(std::move(nodes)) {}

  [[nodiscard]] double now() const override { return now_; }

  [[nodiscard]] const std::vector<int>& nodes() const override { return nodes_; }

  [[nodiscard]] const std::vector<int>& hosts() const override { return nodes_; }

  [[nodiscard]] Transfer submit(Operation operation) override {
    switch (operation.kind) {
      case Kind::send:
        links_->send({.from = rank(), .to = operation.peer, .bytes = operation.data.bytes()}, now_);
        return real().submit(std::move(operation));
      case Kind::receive: {
        const int from = operation.peer;
        real().submit(std::move(operation)).wait();
        now_ = std::max(now_, links_->receive(from, rank()));
        return {};
      }
      case Kind::all_gather:
        real().submit(std::move(operation)).wait();
        meet();
        return {};
      case Kind::barrier:
        meet();
        return {};
      default:
        return real().submit(std::move(operation));
    }
  }

 private:
  // All go on from the time of the last one.
  void meet() {
    std::vector<double> times(static_cast<std::size_t>(size()));
    times[static_cast<std::size_t>(rank())] = now_;
    real().all_gather(Tensor(std::span(times)), {}).wait();
    now_ = *std::max_element(times.begin(), times.end());
  }

  SimulatedLinks* links_;
  std::vector<int> nodes_;
  double now_ = 0.0;
};

// What rank 0 finds; all find the same.
Cluster probed(const Cluster& cluster) {
  SimulatedLinks links(cluster);
  std::vector<Cluster> found(kRanks);
  run_local_ranks(kRanks, {}, [&](Communicator& world) {
    SimulatedTime simulated(world, links, cluster.nodes_of_ranks(kRanks));
    found[static_cast<std::size_t>(world.rank())] = probe_links(simulated);
  });
  for (const Cluster& other : found) {
    REQUIRE(other.network_link.bytes_per_second == found[0].network_link.bytes_per_second);
    REQUIRE(other.node_link.latency_seconds == found[0].node_link.latency_seconds);
  }
  return found[0];
}

// The small messages of a round trip have a byte, which takes 3e-5 of the latency; the clock's
// nanoseconds are less.
void require_same(const Cluster::Link& found, const Cluster::Link& expected) {
  REQUIRE(found.latency_seconds == Approx(expected.latency_seconds).epsilon(1e-4));
  REQUIRE(found.bytes_per_second == Approx(expected.bytes_per_second).epsilon(1e-4));
  REQUIRE(found.source == "measured");
}

}  // namespace

TEST_CASE("probing finds the links of a world, what is shared and whether both ways are one") {
  for (const SharedBy shared_by : {SharedBy::pair, SharedBy::node}) {
    for (const bool duplex : {true, false}) {
      INFO((shared_by == SharedBy::pair ? "pair, " : "node, ") << (duplex ? "duplex" : "one way"));
      const Cluster cluster = links_of(shared_by, duplex);
      const Cluster found = probed(cluster);
      REQUIRE(found.nodes.size() == 2);
      REQUIRE(found.num_devices() == kRanks);
      REQUIRE(found.nodes_of_ranks(kRanks) == cluster.nodes_of_ranks(kRanks));
      require_same(found.node_link, cluster.node_link);
      require_same(found.network_link, cluster.network_link);
      REQUIRE(found.network_link.duplex == duplex);
      REQUIRE(found.network_link.shared_by == shared_by);
      REQUIRE(found.node_link.duplex);
    }
  }
}

TEST_CASE("a latency as long as the messages hides neither what is shared nor one way") {
  for (const bool alone : {true, false}) {
    INFO(alone);
    Cluster cluster = links_of(alone ? SharedBy::pair : SharedBy::node, alone);
    cluster.network_link.latency_seconds = 0.05;
    const Cluster::Link found = probed(cluster).network_link;
    require_same(found, cluster.network_link);
    REQUIRE(found.duplex == cluster.network_link.duplex);
    REQUIRE(found.shared_by == cluster.network_link.shared_by);
  }
}

TEST_CASE("ranks of one node, or one rank of each, have one kind of link") {
  Cluster cluster = links_of(SharedBy::pair, /*duplex=*/true);
  cluster.nodes = {{.count = 1, .devices = kRanks}};
  const Cluster inside = probed(cluster);
  require_same(inside.network_link, cluster.node_link);
  require_same(inside.node_link, cluster.node_link);
  cluster.nodes = {{.count = kRanks, .devices = 1}};
  const Cluster between = probed(cluster);
  require_same(between.node_link, cluster.network_link);
  require_same(between.network_link, cluster.network_link);
}

TEST_CASE("links that are probed in real time take as long as their messages at least") {
  const Cluster cluster = links_of(SharedBy::pair, /*duplex=*/true);
  Cluster found;
  run_local_ranks(kRanks, {.links = cluster}, [&](Communicator& world) {
    const Cluster own = probe_links(world);
    if (world.rank() == 0) {
      found = own;
    }
  });
  // A busy machine makes messages later, and nothing makes them earlier.
  REQUIRE(found.node_link.latency_seconds >= cluster.node_link.latency_seconds);
  REQUIRE(found.network_link.latency_seconds >= cluster.network_link.latency_seconds);
}

}  // namespace slackline::testing
