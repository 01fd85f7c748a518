#include "core/comm/link_probe.h"

#include <string>

#include "core/comm/world.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using SharedBy = Cluster::SharedBy;

// Two nodes of two ranks; links slow enough that emulating them is most of the work.
Cluster emulated(SharedBy shared_by, bool duplex) {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 2}};
  cluster.node_link = {.latency_seconds = 1e-3, .bytes_per_second = 40e6};
  cluster.network_link = {
      .latency_seconds = 8e-3, .bytes_per_second = 4e6, .duplex = duplex, .shared_by = shared_by};
  return cluster;
}

// A busy machine makes messages later, and nothing makes them earlier.
void require_possible(const Cluster::Link& found, const Cluster::Link& emulated) {
  REQUIRE(found.latency_seconds >= emulated.latency_seconds);
  REQUIRE(found.bytes_per_second < 1.1 * emulated.bytes_per_second);
  REQUIRE(found.source == "measured");
}

bool is_close(const Cluster::Link& found, const Cluster::Link& emulated) {
  return found.latency_seconds < 2.0 * emulated.latency_seconds &&
         found.bytes_per_second > 0.5 * emulated.bytes_per_second;
}

Cluster probed(const Cluster& cluster) {
  Cluster first;
  run_local_ranks(4, {.links = cluster}, [&](Communicator& world) {
    const Cluster found = probe_links(world);
    if (world.rank() == 0) {
      first = found;
    }
  });
  return first;
}

// Probes until other programs have left the machine alone for as long as a probe takes.
template <typename IsFound>
Cluster probed_until(const Cluster& cluster, const IsFound& is_found) {
  constexpr int kAttempts = 10;
  Cluster found = probed(cluster);
  for (int i = 1; i < kAttempts && !is_found(found); ++i) {
    found = probed(cluster);
  }
  return found;
}

}  // namespace

TEST_CASE("probing finds the links of a world") {
  const Cluster cluster = emulated(SharedBy::pair, /*duplex=*/true);
  const auto is_found = [&](const Cluster& found) {
    return is_close(found.node_link, cluster.node_link) &&
           is_close(found.network_link, cluster.network_link) && found.network_link.duplex &&
           found.network_link.shared_by == SharedBy::pair;
  };
  const Cluster found = probed_until(cluster, is_found);
  REQUIRE(found.nodes.size() == 2);
  REQUIRE(found.num_devices() == 4);
  REQUIRE(found.nodes_of_ranks(4) == cluster.nodes_of_ranks(4));
  require_possible(found.node_link, cluster.node_link);
  require_possible(found.network_link, cluster.network_link);
  REQUIRE(is_found(found));
}

TEST_CASE("probing tells a link that both directions or all ranks of a node share") {
  const auto is_found = [](const Cluster& found) {
    return !found.network_link.duplex && found.network_link.shared_by == SharedBy::node;
  };
  REQUIRE(is_found(probed_until(emulated(SharedBy::node, /*duplex=*/false), is_found)));
}

TEST_CASE("ranks of one node, or one rank of each, have one kind of link") {
  Cluster cluster = emulated(SharedBy::pair, /*duplex=*/true);
  cluster.nodes = {{.count = 1, .devices = 4}};
  const auto is_inside = [&](const Cluster& found) {
    return is_close(found.network_link, cluster.node_link);
  };
  const Cluster inside = probed_until(cluster, is_inside);
  require_possible(inside.network_link, cluster.node_link);
  REQUIRE(is_inside(inside));
  cluster.nodes = {{.count = 4, .devices = 1}};
  const auto is_between = [&](const Cluster& found) {
    return is_close(found.node_link, cluster.network_link);
  };
  const Cluster between = probed_until(cluster, is_between);
  require_possible(between.node_link, cluster.network_link);
  REQUIRE(is_between(between));
}

}  // namespace slackline::testing
