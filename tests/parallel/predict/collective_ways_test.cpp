// What collectives through groups of data ranks take by the links, and when they are chosen.

#include "parallel/predict/collective_ways.h"

#include <algorithm>

#include "parallel/predict/collective_times.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

using Kind = TransferRecord::Kind;
using Way = Hierarchy::Way;
using schedule::Link;

// Eight data ranks on two nodes of four, which share an adapter.
Cluster slow_network() {
  Cluster cluster{.nodes = {{.count = 2, .devices = 4}}};
  cluster.node_link = {.latency_seconds = 5e-6, .bytes_per_second = 100e9};
  cluster.network_link = {
      .latency_seconds = 20e-6, .bytes_per_second = 1e9, .shared_by = Cluster::SharedBy::node};
  return cluster;
}

// All pairs of ranks have links of their own, as fast between nodes as inside.
Cluster even_network() {
  Cluster cluster = slow_network();
  cluster.network_link = cluster.node_link;
  return cluster;
}

ParallelConfig grouped(int data = 8, int group = 4) {
  return {.data = data, .group = group};
}

CollectiveWays ways_of(const ParallelConfig& config,
                       CollectivesWish wish,
                       const LinkSpeeds& links) {
  return with_collectives(config, wish, links).ways.value();
}

CollectiveCall call_of(Kind kind, std::size_t bytes, int group) {
  return {.kind = kind,
          .elements = bytes / sizeof(float),
          .order = {.runs = {group, 1}},
          .hierarchy = {.ranks_in_group = group}};
}

}  // namespace

// Slices of 3 MB, three groups of two, by hand.
TEST_CASE("the ways take what their exchanges take") {
  CollectiveLinks links{.ranks = 6,
                        .direct = {.latency = {20e-6}, .bytes_per_second = 1e9},
                        .inside = {.latency = {5e-6}, .bytes_per_second = 10e9},
                        .to_group = {.latency = {20e-6}, .bytes_per_second = 6e9},
                        .to_groups = {.latency = {20e-6}, .bytes_per_second = 3e9}};
  constexpr std::size_t kBytes = 18'000'000;
  const auto seconds = [&](Kind kind, Way way) {
    return times_of(links, call_of(kind, kBytes, 2), way).seconds().value;
  };
  CHECK(seconds(Kind::all_gather, Way::direct) == Approx(3e-3 + 20e-6));
  CHECK(seconds(Kind::all_reduce, Way::direct) == Approx(2 * (3e-3 + 20e-6)));
  CHECK(seconds(Kind::all_gather, Way::sequential) == Approx(9e6 / 10e9 + 3e6 / 3e9 + 25e-6));
  const double inside = 3e6 / 10e9 + 5e-6;
  const double between = 3e6 / 6e9 + 20e-6;
  CHECK(seconds(Kind::all_gather, Way::overlapped) == Approx(2 * between + inside));
  CHECK(seconds(Kind::all_reduce, Way::overlapped) == Approx(2 * (2 * between + inside)));
  links.to_group.bytes_per_second = 1e12;
  CHECK(seconds(Kind::reduce_scatter, Way::overlapped) == Approx(3 * inside));
}

// Sums of bf16 cross in fp32.
TEST_CASE("sums of bf16 take twice as long between groups, gathers do not") {
  const CollectiveLinks links{
      .ranks = 4, .inside = {.bytes_per_second = 1e9}, .to_groups = {.bytes_per_second = 1e9}};
  CollectiveCall call = call_of(Kind::all_gather, 8'000'000, 2);
  call.element_size = 2;  // 1 MB a slice
  CHECK(times_of(links, call, Way::sequential).service.value == Approx(2e-3 + 1e-3));
  call.kind = Kind::reduce_scatter;
  CHECK(times_of(links, call, Way::sequential).service.value == Approx(2e-3 + 2e-3));
}

// What leaves a node: 4 ranks send 4 slices each, or one.
TEST_CASE("a node's adapter is shared by what the way sends over it") {
  const CollectiveLinks links = data_links(grouped(), slow_network(), 0);
  CHECK(links.direct.bytes_per_second == Approx(1e9 / 16));
  CHECK(links.to_groups.bytes_per_second == Approx(1e9 / 4));
  CHECK(links.to_group.bytes_per_second == Approx(1e9 / 4));
  CHECK(links.inside.bytes_per_second == Approx(100e9));
}

TEST_CASE("a sum through groups keeps a node's adapter busy unless it is slower inside") {
  CollectiveCall call = call_of(Kind::all_reduce, std::size_t{8} << 20U, 4);
  for (const bool overlapped : {false, true}) {
    (overlapped ? call.hierarchy.overlapped_from : call.hierarchy.sequential_from) = 0;
    Cluster cluster = slow_network();
    const CollectiveLinks links = data_links(grouped(), cluster, 0);
    CHECK(end_of(links, call) == links.direct.ends[0]);
    CHECK(end_of(links, call) >= 0);
    cluster.node_link.bytes_per_second = 1e8;
    CHECK(end_of(data_links(grouped(), cluster, 0), call) == -1);
    CHECK(end_of(data_links(grouped(), even_network(), 0), call) == -1);
  }
}

TEST_CASE("without links, groups or a wish for it nothing goes through groups") {
  const CollectiveWays direct;
  CHECK(ways_of(grouped(), CollectivesWish::automatic, {}) == direct);
  CHECK(ways_of(grouped(), CollectivesWish::direct, slow_network()) == direct);
  for (const int group : {8, 1}) {  // one group, and groups of one
    for (const CollectivesWish wish : {CollectivesWish::automatic, CollectivesWish::hierarchical}) {
      CHECK(ways_of(grouped(8, group), wish, slow_network()) == direct);
    }
  }
  CHECK(ways_of(grouped(), CollectivesWish::automatic, even_network()) == direct);
}

TEST_CASE("what is decided stays so") {
  ParallelConfig config = with_collectives(grouped(), CollectivesWish::direct, {});
  config = with_collectives(config, CollectivesWish::hierarchical, slow_network());
  CHECK(config.ways == CollectiveWays{});
}

TEST_CASE("each size goes the way that takes least, to a power of two") {
  for (const double network : {1e8, 1e9, 1e10, 1e11}) {
    Cluster cluster = slow_network();
    cluster.network_link.bytes_per_second = network;
    ParallelConfig config = with_collectives(grouped(), CollectivesWish::automatic, cluster);
    const CollectiveLinks links = data_links(config, cluster, 0);
    for (std::size_t bytes = std::size_t{1} << 13U; bytes <= std::size_t{1} << 30U; bytes *= 2) {
      CollectiveCall call = call_of(Kind::all_reduce, bytes, 4);
      call.hierarchy = config.data_hierarchy();
      const double taken = times_of(links, call).seconds().value;
      INFO(network << " bytes/s, " << bytes << " bytes");
      for (const Way way : {Way::direct, Way::sequential, Way::overlapped}) {
        CHECK(taken <= times_of(links, call, way).seconds().value);
      }
    }
  }
}

TEST_CASE("over a slow network large sums go through groups, and small ones directly") {
  const CollectiveWays ways = ways_of(grouped(), CollectivesWish::automatic, slow_network());
  CHECK(std::min(ways.data.sequential_from, ways.data.overlapped_from) <= std::size_t{1} << 20U);
  Cluster far = slow_network();
  far.network_link.latency_seconds = 1e-2;
  far.node_link.latency_seconds = 1e-2;
  const CollectiveWays of_far = ways_of(grouped(), CollectivesWish::automatic, far);
  CHECK(std::min(of_far.data.sequential_from, of_far.data.overlapped_from) > std::size_t{1} << 20U);
}

TEST_CASE("asked for, everything goes through groups, large tensors overlapped without links") {
  const CollectiveWays ways = ways_of(grouped(), CollectivesWish::hierarchical, {});
  CHECK(ways.data == GroupWays{.sequential_from = 0, .overlapped_from = std::size_t{8} << 20U});
  CHECK(ways.table == ways.data);
  CHECK(ways_of(grouped(), CollectivesWish::hierarchical, even_network()).data.sequential_from ==
        0);
}

// Both stages of a pipeline on a node: the table's holders are four ranks there.
TEST_CASE("a tied table's holders go through their own groups") {
  const ParallelConfig config = with_collectives(
      {.pipeline = 2, .data = 4, .group = 2}, CollectivesWish::automatic, slow_network());
  CHECK(config.table_hierarchy().ranks_in_group == 4);
  CHECK_FALSE(config.table_hierarchy().is_flat());
  CHECK(config.data_hierarchy().ranks_in_group == 2);
}

}  // namespace slackline
