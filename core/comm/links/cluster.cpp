#include "core/comm/links/cluster.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "core/check.h"
#include "core/file_errors.h"
#include "core/json_reader.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 3> kScopes = {"node", "switch", "network"};
constexpr std::array<std::string_view, 2> kSharers = {"pair", "node"};
constexpr std::array<std::string_view, 3> kSources = {"measured", "published", "assumed"};
constexpr std::int64_t kMostNodes = 1'000'000;
constexpr std::int64_t kMostDevices = 1'000'000'000;
// Less is a slip of units.
constexpr double kSlowestLink = 1000.0;
constexpr double kLeastMemory = 1e6;
constexpr double kSlowestDevice = 1e6;

Cluster::Device read_device(JsonReader section) {
  Cluster::Device device;
  device.name = section.string("name", "");
  const auto speed = [](JsonReader& of, const char* key) {
    const double value = of.number(key, {.min = 0.0, .exclusive_min = true});
    if (value < kSlowestDevice) {
      of.fail(key, "is of a second, of which 2 TB are 2e12, and 20 TFLOP 2e13; must be >= 1000000");
    }
    return value;
  };
  JsonReader flops = section.section("flops");
  device.fp32_flops = speed(flops, "fp32");
  device.bf16_flops = speed(flops, "bf16");
  flops.finish();
  device.memory_bytes_per_second = speed(section, "memory_bytes_per_second");
  device.efficiency = section.number(
      "efficiency",
      {.default_value = kUsualEfficiency, .min = 0.0, .max = 1.0, .exclusive_min = true});
  section.finish();
  return device;
}

Cluster::Nodes read_kind(JsonReader& section) {
  Cluster::Nodes nodes;
  nodes.count =
      static_cast<int>(section.integer("count", {.default_value = 1, .min = 1, .max = kMostNodes}));
  nodes.devices = static_cast<int>(section.integer("devices", {.min = 1, .max = 1024}));
  nodes.memory_bytes = section.number("memory_bytes", {.default_value = 0.0, .min = 0.0});
  if (nodes.memory_bytes > 0.0 && nodes.memory_bytes < kLeastMemory) {
    section.fail("memory_bytes", "is in bytes, of which 80 GB are 8e10; must be 0 or >= 1000000");
  }
  if (section.has("device")) {
    nodes.device = read_device(section.section("device"));
  }
  section.finish();
  return nodes;
}

Cluster::Link read_link(JsonReader& section) {
  Cluster::Link link;
  link.latency_seconds =
      section.number("latency_seconds", {.default_value = 0.0, .min = 0.0, .max = 1.0});
  link.bytes_per_second = section.number("bytes_per_second", {.min = 0.0, .exclusive_min = true});
  if (link.bytes_per_second < kSlowestLink) {
    section.fail("bytes_per_second", "is in bytes, of which 200 Gb/s are 2.5e10; must be >= 1000");
  }
  link.duplex = section.boolean("duplex", true);
  link.shared_by = static_cast<Cluster::SharedBy>(section.choice("shared_by", kSharers, 0));
  link.source = kSources[section.choice("source", kSources, 2)];
  section.finish();
  return link;
}

Cluster read(JsonReader document) {
  Cluster cluster{.nodes = read_nodes(document)};
  const auto [node, one_switch, network] = read_links(document, cluster);
  if (one_switch) {
    cluster.nodes_per_switch =
        static_cast<int>(document.integer("nodes_per_switch", {.min = 1, .max = kMostNodes}));
  } else if (document.has("nodes_per_switch")) {
    document.fail("nodes_per_switch",
                  "needs the link between nodes of a switch: {\"scope\": \"switch\", ...}");
  }
  document.finish();  // a misspelt list comes before what its absence means
  const auto has_several = [](const Cluster::Nodes& kind) { return kind.devices > 1; };
  if (!node && std::ranges::any_of(cluster.nodes, has_several)) {
    document.fail("links", "must give the link inside a node: {\"scope\": \"node\", ...}");
  }
  const int last_node = cluster.node_of(cluster.num_devices() - 1);
  if (!network && cluster.scope_between(0, last_node) == Cluster::Scope::network) {
    document.fail("links", "must give the link between nodes: {\"scope\": \"network\", ...}");
  }
  return cluster;
}

}  // namespace

int Cluster::num_devices() const {
  int devices = 0;
  for (const Nodes& kind : nodes) {
    devices += kind.count * kind.devices;
  }
  return devices;
}

int Cluster::node_of(int rank) const {
  int first_rank = 0;
  int first_node = 0;
  for (const Nodes& kind : nodes) {
    const int ranks = kind.count * kind.devices;
    if (rank < first_rank + ranks) {
      return first_node + (rank - first_rank) / kind.devices;
    }
    first_rank += ranks;
    first_node += kind.count;
  }
  SL_CHECK(false,
           "rank " + std::to_string(rank) + " of a cluster with " + std::to_string(num_devices()) +
               " devices");
}

std::vector<int> Cluster::nodes_of_ranks(int ranks) const {
  std::vector<int> of_ranks;
  of_ranks.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    of_ranks.push_back(node_of(rank));
  }
  return of_ranks;
}

Cluster::Scope Cluster::scope_between(int node, int other) const {
  if (node == other) {
    return Scope::node;
  }
  const bool one_switch =
      nodes_per_switch > 0 && node / nodes_per_switch == other / nodes_per_switch;
  return one_switch ? Scope::one_switch : Scope::network;
}

const Cluster::Link& Cluster::link_of(Scope scope) const {
  switch (scope) {
    case Scope::node:
      return node_link;
    case Scope::one_switch:
      return switch_link;
    case Scope::network:
      break;
  }
  return network_link;
}

std::vector<Cluster::Nodes> read_nodes(JsonReader& document) {
  std::vector<Cluster::Nodes> nodes;
  std::int64_t devices = 0;
  for (JsonReader& section : document.sections("nodes")) {
    const Cluster::Nodes& kind = nodes.emplace_back(read_kind(section));
    devices += std::int64_t{kind.count} * kind.devices;
  }
  if (nodes.empty()) {
    document.fail("nodes", "must list at least one kind of node");
  }
  const auto says_device = [](const Cluster::Nodes& kind) { return kind.device.has_value(); };
  if (std::ranges::any_of(nodes, says_device) && !std::ranges::all_of(nodes, says_device)) {
    document.fail("nodes", "must give the device of every kind of node, or of none");
  }
  if (devices > kMostDevices) {
    document.fail("nodes", "must have at most 1000000000 devices together");
  }
  return nodes;
}

std::array<bool, 3> read_links(JsonReader& document, Cluster& cluster) {
  std::array<bool, 3> seen{};
  for (JsonReader& section : document.sections("links")) {
    const std::size_t scope = section.choice("scope", kScopes);
    if (seen[scope]) {
      section.fail("scope", "must differ from link to link");
    }
    seen[scope] = true;
    *cluster.links()[scope] = read_link(section);
  }
  return seen;
}

Cluster read_cluster(const std::string& path) {
  return reading<ConfigError>(path, [&] { return read(JsonReader::parse_file(path)); });
}

Cluster read_emulated_cluster(const std::string& path) {
  Cluster cluster = read_cluster(path);
  for (Cluster::Link* link : cluster.links()) {
    link->eager_bytes = std::numeric_limits<double>::infinity();
  }
  return cluster;
}

}  // namespace slackline
