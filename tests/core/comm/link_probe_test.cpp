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
void require_found(const Cluster::Link& found, const Cluster::Link& emulated) {
  CHECK(found.latency_seconds >= emulated.latency_seconds);
  CHECK(found.latency_seconds < 2.0 * emulated.latency_seconds);
  CHECK(found.bytes_per_second < 1.1 * emulated.bytes_per_second);
  CHECK(found.bytes_per_second > 0.5 * emulated.bytes_per_second);
  CHECK(found.source == "measured");
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

}  // namespace

TEST_CASE("probing finds the links of a world") {
  const Cluster cluster = emulated(SharedBy::pair, /*duplex=*/true);
  const Cluster found = probed(cluster);
  REQUIRE(found.nodes.size() == 2);
  REQUIRE(found.num_devices() == 4);
  REQUIRE(found.nodes_of_ranks(4) == cluster.nodes_of_ranks(4));
  require_found(found.node_link, cluster.node_link);
  require_found(found.network_link, cluster.network_link);
  CHECK(found.network_link.duplex);
  CHECK(found.network_link.shared_by == SharedBy::pair);
}

TEST_CASE("probing tells a link that both directions or all ranks of a node share") {
  const Cluster found = probed(emulated(SharedBy::node, /*duplex=*/false));
  CHECK_FALSE(found.network_link.duplex);
  CHECK(found.network_link.shared_by == SharedBy::node);
}

TEST_CASE("ranks of one node, or one rank of each, have one kind of link") {
  Cluster cluster = emulated(SharedBy::pair, /*duplex=*/true);
  cluster.nodes = {{.count = 1, .devices = 4}};
  const Cluster inside = probed(cluster);
  require_found(inside.network_link, cluster.node_link);
  cluster.nodes = {{.count = 4, .devices = 1}};
  const Cluster between = probed(cluster);
  require_found(between.node_link, cluster.network_link);
}

}  // namespace slackline::testing
