#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/comm/links/cluster.h"
#include "core/comm/links/link_model.h"
#include "core/comm/world.h"
#include "core/error.h"
#include "tests/core/comm/comm_checks.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/refusal.h"

namespace slackline::testing {

namespace {

using Catch::Contains;
using Clock = LinkModel::Clock;
using std::chrono::milliseconds;

constexpr double kMegabyte = 1e6;  // bytes

// Two nodes of two devices; 1 ms to start with, 1 MB a millisecond between nodes.
Cluster two_nodes(Cluster::SharedBy shared_by, bool duplex) {
  Cluster cluster;
  cluster.nodes = {{.count = 2, .devices = 2}};
  cluster.network_link = {.latency_seconds = 1e-3,
                          .bytes_per_second = 1e3 * kMegabyte,
                          .duplex = duplex,
                          .shared_by = shared_by};
  return cluster;
}

struct Carried {
  int from = 0;
  int to = 0;
};

// Arrivals, in whole milliseconds, of messages of 1 MB sent at the same time: in the order in which
// they reach the receivers' ends.
std::vector<long> arrivals(const Cluster& cluster, const std::vector<Carried>& messages) {
  std::vector<LinkModel::Slot> slots(LinkModel::num_slots(cluster, 4));
  LinkModel model(cluster, 4, slots);
  const Clock::time_point start = Clock::now();
  const auto passage = [&](std::size_t i) {
    return LinkModel::Passage{.from = messages[i].from, .to = messages[i].to, .bytes = 1'000'000};
  };
  std::multimap<Clock::time_point, std::size_t> reached;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    reached.emplace(model.depart(passage(i), start), i);
  }
  std::vector<long> arrived(messages.size());
  for (const auto& [time, i] : reached) {
    const auto arrival = model.arrive(passage(i), time);
    arrived[i] = std::chrono::duration_cast<milliseconds>(arrival - start).count();
  }
  return arrived;
}

// A cluster file that lasts as long as this.
class ClusterFile {
 public:
  explicit ClusterFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("cluster_of_links_test." + std::to_string(getpid()) + ".json")) {
    std::ofstream(path_) << text;
  }

  ~ClusterFile() { std::filesystem::remove(path_); }

  ClusterFile(const ClusterFile&) = delete;
  ClusterFile& operator=(const ClusterFile&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string cluster_refusal(const std::string& text) {
  const ClusterFile file(text);
  return refusal_of<ConfigError>([&] { return read_cluster(file.path()); });
}

}  // namespace

TEST_CASE("a link serves messages one after the other") {
  const Cluster cluster = two_nodes(Cluster::SharedBy::pair, true);
  REQUIRE(arrivals(cluster, {{0, 2}, {0, 2}, {0, 2}}) == std::vector<long>{2, 3, 4});
}

TEST_CASE("pairs have links of their own, one for each direction where duplex") {
  const std::vector<Carried> messages = {{0, 2}, {0, 3}, {1, 2}, {2, 0}};
  REQUIRE(arrivals(two_nodes(Cluster::SharedBy::pair, true), messages) ==
          std::vector<long>{2, 2, 2, 2});
  REQUIRE(arrivals(two_nodes(Cluster::SharedBy::pair, false), messages) ==
          std::vector<long>{2, 2, 2, 3});
}

TEST_CASE("ranks of a node share its link") {
  const std::vector<Carried> messages = {{0, 2}, {0, 3}, {1, 2}, {2, 0}};
  REQUIRE(arrivals(two_nodes(Cluster::SharedBy::node, true), messages) ==
          std::vector<long>{2, 3, 4, 2});
  REQUIRE(arrivals(two_nodes(Cluster::SharedBy::node, false), messages).back() == 5);
}

TEST_CASE("a node's way in serves what reaches it first, not what was sent first") {
  Cluster cluster = two_nodes(Cluster::SharedBy::node, true);
  cluster.nodes = {{.count = 4, .devices = 1}};
  // Rank 0's second message reaches node 2 after rank 1's first; each round takes one service.
  REQUIRE(arrivals(cluster, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {1, 0}}) ==
          std::vector<long>{2, 3, 4, 2, 3, 4});
}

TEST_CASE("links inside a node are not those between nodes") {
  REQUIRE(arrivals(two_nodes(Cluster::SharedBy::node, true), {{0, 1}, {0, 2}}) ==
          std::vector<long>{0, 2});
}

// Two switches of two nodes of one rank each: 1 ms for 1 MB between the nodes of a switch, and 4
// ms, after 1 ms to start with, between switches.
Cluster two_switches() {
  Cluster cluster = two_nodes(Cluster::SharedBy::node, true);
  cluster.nodes = {{.count = 4, .devices = 1}};
  cluster.nodes_per_switch = 2;
  cluster.switch_link = cluster.network_link;
  cluster.switch_link.latency_seconds = 0.0;
  cluster.network_link.bytes_per_second = 250.0 * kMegabyte;
  return cluster;
}

TEST_CASE("nodes of one switch have ways of their own, beside those to other switches") {
  REQUIRE(arrivals(two_switches(), {{0, 1}, {0, 2}, {0, 3}, {3, 2}, {1, 0}}) ==
          std::vector<long>{1, 5, 9, 1, 1});
  REQUIRE(arrivals(two_switches(), {{0, 1}, {0, 1}, {1, 0}}) == std::vector<long>{1, 2, 1});
  Cluster half = two_switches();
  half.switch_link.duplex = false;
  REQUIRE(arrivals(half, {{0, 1}, {0, 2}, {1, 0}}) == std::vector<long>{2, 5, 2});
}

TEST_CASE("messages over emulated links take at least their time, and bring the same data") {
  Cluster cluster = two_nodes(Cluster::SharedBy::node, true);
  cluster.network_link.bytes_per_second = kMegabyte;
  constexpr std::size_t kBytes = 20'000;
  std::array<Clock::time_point, 4> begins;
  std::array<Clock::time_point, 4> ends;
  run_local_ranks(4, {.links = cluster}, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    expect(world.nodes() == std::vector<int>{0, 0, 1, 1}, world, "nodes of the cluster");
    GuardedTensor data(DType::f32, Shape{kBytes / 4});
    data.fill(world.rank());
    world.record_transfers(true);
    world.barrier({}).wait();
    begins[rank] = Clock::now();
    if (world.rank() < 2) {
      world.send(data, world.rank() + 2, {}).wait();
    } else {
      world.receive(data, world.rank() - 2, {}).wait();
      expect(data.values().back() == world.rank() - 2, world, "data");
    }
    ends[rank] = Clock::now();
    const std::vector<TransferRecord> records = world.take_records();
    // A receive may be submitted late on a busy machine, when its message is already there.
    expect(world.rank() >= 2 || records[1].finished - records[1].submitted >= kBytes / kMegabyte,
           world,
           "record of a send");
  });
  // Both messages pass node 0's way out, whichever rank comes first.
  const std::chrono::duration<double> took =
      *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
  REQUIRE(took.count() >= 2.0 * kBytes / kMegabyte);
}

TEST_CASE("every collective is right over emulated links") {
  Cluster cluster = two_nodes(Cluster::SharedBy::node, false);
  cluster.network_link.latency_seconds = 1e-5;
  cluster.node_link.latency_seconds = 1e-6;
  for (const Cluster& links : {cluster, two_switches()}) {
    for (const CommCheck& check : comm_checks()) {
      INFO(check.claim);
      REQUIRE_NOTHROW(run_local_ranks(4, {.links = links, .longest_background = 4096}, check.run));
    }
  }
}

TEST_CASE("a cluster file says which nodes a switch joins") {
  const std::string links = R"({"scope": "switch", "bytes_per_second": 2e9},
    {"scope": "network", "bytes_per_second": 1e9})";
  const ClusterFile file(R"({"nodes": [{"count": 5, "devices": 1}], "nodes_per_switch": 2,
    "links": [)" + links +
                         "]}");
  const Cluster cluster = read_cluster(file.path());
  REQUIRE(cluster.switch_link.bytes_per_second == 2e9);
  const auto scope = [&](int node, int other) { return cluster.scope_between(node, other); };
  REQUIRE(scope(3, 3) == Cluster::Scope::node);
  REQUIRE(scope(0, 1) == Cluster::Scope::one_switch);
  REQUIRE(scope(3, 2) == Cluster::Scope::one_switch);
  REQUIRE(scope(1, 2) == Cluster::Scope::network);
  REQUIRE(scope(4, 0) == Cluster::Scope::network);
  REQUIRE(two_nodes(Cluster::SharedBy::pair, true).scope_between(0, 1) == Cluster::Scope::network);

  // A switch that joins all of them leaves nothing between switches.
  const ClusterFile one(R"({"nodes": [{"count": 2, "devices": 1}], "nodes_per_switch": 2,
    "links": [{"scope": "switch", "bytes_per_second": 2e9}]})");
  REQUIRE(read_cluster(one.path()).nodes_per_switch == 2);
  const std::string nodes = R"({"nodes": [{"count": 4, "devices": 1}], )";
  REQUIRE_THAT(cluster_refusal(nodes + R"("links": [)" + links + "]}"),
               Contains("nodes_per_switch"));
  REQUIRE_THAT(cluster_refusal(nodes + R"("nodes_per_switch": 2,
    "links": [{"scope": "switch", "bytes_per_second": 2e9}]})"),
               Contains("links") && Contains("link between nodes"));
}

TEST_CASE("a cluster file says where ranks stand") {
  const std::string device = R"("device": {"name": "A100",
    "flops": {"fp32": 1.95e13, "bf16": 3.12e14}, "memory_bytes_per_second": 2e12)";
  const ClusterFile file(R"({"nodes": [{"count": 1, "devices": 2, )" + device + R"(}},
    {"count": 2, "devices": 3, "memory_bytes": 8e9, )" +
                         device + R"(, "efficiency": 0.5}}],
    "links": [{"scope": "network", "latency_seconds": 1e-5,
    "bytes_per_second": 1.25e9, "duplex": false, "shared_by": "node", "source": "published"},
    {"scope": "node", "bytes_per_second": 1e11}]})");
  const Cluster cluster = read_cluster(file.path());
  REQUIRE(cluster.num_devices() == 8);
  REQUIRE(cluster.nodes_of_ranks(8) == std::vector<int>{0, 0, 1, 1, 1, 2, 2, 2});
  REQUIRE(cluster.network_link.bytes_per_second == 1.25e9);
  REQUIRE_FALSE(cluster.network_link.duplex);
  REQUIRE(cluster.network_link.shared_by == Cluster::SharedBy::node);
  REQUIRE(cluster.network_link.source == "published");
  REQUIRE(cluster.node_link.bytes_per_second == 1e11);
  REQUIRE(cluster.nodes[1].memory_bytes == 8e9);
  REQUIRE(cluster.nodes[0].device->name == "A100");
  REQUIRE(cluster.nodes[0].device->fp32_flops == 1.95e13);
  REQUIRE(cluster.nodes[0].device->bf16_flops == 3.12e14);
  REQUIRE(cluster.nodes[0].device->memory_bytes_per_second == 2e12);
  REQUIRE(cluster.nodes[0].device->efficiency == kUsualEfficiency);
  REQUIRE(cluster.nodes[1].device->efficiency == 0.5);
}

TEST_CASE("emulated links send messages of any length at once") {
  const ClusterFile file(R"({"nodes": [{"devices": 2}],
    "links": [{"scope": "node", "bytes_per_second": 1e9}]})");
  REQUIRE(read_cluster(file.path()).node_link.eager_bytes == kEagerBytes);
  const Cluster emulated = read_emulated_cluster(file.path());
  REQUIRE(std::isinf(emulated.node_link.eager_bytes));
  REQUIRE(std::isinf(emulated.network_link.eager_bytes));
}

TEST_CASE("a bad cluster file is refused with its path, key and rule") {
  const std::string nodes = R"("nodes": [{"devices": 2}])";
  const std::string link = R"({"scope": "network", "bytes_per_second": 1e9})";
  REQUIRE_THAT(cluster_refusal("{}"), Contains("cluster_of_links_test.") && Contains("nodes"));
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [{"devices": 0}]})"), Contains("nodes.0.devices"));
  REQUIRE_THAT(cluster_refusal("{" + nodes + R"(, "links": [{"scope": "rack"}]})"),
               Contains("links.0.scope") && Contains("rack"));
  REQUIRE_THAT(
      cluster_refusal("{" + nodes + R"(, "links": [{"scope": "node", "bytes_per_second": 0}]})"),
      Contains("links.0.bytes_per_second"));
  REQUIRE_THAT(cluster_refusal("{" + nodes + R"(, "links": [)" + link + ", " + link + "]}"),
               Contains("links.1.scope"));
  REQUIRE_THAT(cluster_refusal("{" + nodes + R"(, "racks": 1})"), Contains("racks"));
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [{"devices": 1, "device": {"name": "H100"}}]})"),
               Contains("nodes.0.device.flops.fp32"));
  const auto with_device = [](const std::string& fp32, const std::string& more) {
    return R"({"nodes": [{"devices": 1, "device": {"flops": {"fp32": )" + fp32 +
           R"(, "bf16": 3e14}, "memory_bytes_per_second": 2e12)" + more + "}}";
  };
  REQUIRE_THAT(cluster_refusal(with_device("19.5", "") + "]}"),
               Contains("nodes.0.device.flops.fp32") && Contains("2e13"));
  REQUIRE_THAT(cluster_refusal(with_device("2e13", R"(, "efficiency": 1.5)") + "]}"),
               Contains("nodes.0.device.efficiency"));
  REQUIRE_THAT(cluster_refusal(with_device("2e13", "") + R"(, {"devices": 1}]})"),
               Contains("nodes") && Contains("every kind of node, or of none"));
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [{"devices": 1}], "nodes_per_switch": 2})"),
               Contains("nodes_per_switch") && Contains("between nodes of a switch"));
  REQUIRE_THAT(cluster_refusal("{" + nodes + R"(, "links": [)" + link + "]}"),
               Contains("links") && Contains("link inside a node"));
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [{"count": 2, "devices": 1}]})"),
               Contains("links") && Contains("link between nodes"));
  REQUIRE_THAT(
      cluster_refusal("{" + nodes + R"(, "links": [{"scope": "node", "bytes_per_second": 200}]})"),
      Contains("links.0.bytes_per_second") && Contains("2.5e10"));
  const std::string slow = R"({"scope": "node", "bytes_per_second": 1e9, "latency_seconds": 5})";
  REQUIRE_THAT(cluster_refusal("{" + nodes + R"(, "links": [)" + slow + "]}"),
               Contains("links.0.latency_seconds"));
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [{"devices": 1, "memory_bytes": 80}]})"),
               Contains("nodes.0.memory_bytes") && Contains("8e10"));
  const std::string many = R"({"count": 1000000, "devices": 1024})";
  REQUIRE_THAT(cluster_refusal(R"({"nodes": [)" + many + ", " + many + "]}"), Contains("together"));
  REQUIRE_THROWS_AS(read_cluster("no_such_cluster.json"), ConfigError);
}

TEST_CASE("a world larger than its cluster is refused") {
  REQUIRE_THROWS_WITH(make_local_world(5, {.links = two_nodes(Cluster::SharedBy::pair, true)}),
                      Contains("network.links") && Contains("4 devices") && Contains("5 ranks"));
}

}  // namespace slackline::testing
