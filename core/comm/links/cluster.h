#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

class JsonReader;

// MPI sends what is shorter, its header included, over TCP at once
// (core/comm/transport/mpi_transport).
inline constexpr int kEagerBytes = 512 << 10;

// A device is taken to reach this share of its peak in products, where nothing else is known.
inline constexpr double kUsualEfficiency = 0.4;

// A cluster file (configs/clusters/README.md): nodes with their devices, and the links inside and
// between nodes. Ranks stand on devices in launch order, and nodes at switches in order.
struct Cluster {
  // Says how fast a device computes: its peaks, and the share of them that products reach.
  struct Device {
    std::string name{};
    double fp32_flops = 0.0;  // a second
    double bf16_flops = 0.0;
    double memory_bytes_per_second = 0.0;
    double efficiency = 0.0;  // of the flops
  };

  struct Nodes {
    int count = 1;
    int devices = 1;                 // of each
    double memory_bytes = 0.0;       // of a device; 0: not said
    std::optional<Device> device{};  // of all kinds of nodes, or of none
  };

  enum class SharedBy { pair, node };

  // Two ranks are joined by one of these: their node, a switch of their nodes, or all beyond it.
  enum class Scope { node, one_switch, network };

  // How long a message takes: a wait for the link, bytes / bytes_per_second, latency_seconds.
  struct Link {
    double latency_seconds = 0.0;
    double bytes_per_second = 0.0;        // 0: no limit
    bool duplex = true;                   // both directions at once
    SharedBy shared_by = SharedBy::pair;  // each pair of ranks has its own, or all ranks of a node
    std::string source = "assumed";       // or "measured", "published"
    // A message of as many or more starts once its receive is posted; no key of a file.
    double eager_bytes = kEagerBytes;
  };

  std::vector<Nodes> nodes{};
  int nodes_per_switch = 0;  // 0: no switches are told apart
  Link node_link{};          // between ranks of one node
  Link switch_link{};        // between nodes of one switch, where switches are told apart
  Link network_link{};       // between all other nodes

  [[nodiscard]] int num_devices() const;
  // REQUIRES: 0 <= rank < num_devices().
  [[nodiscard]] int node_of(int rank) const;
  [[nodiscard]] std::vector<int> nodes_of_ranks(int ranks) const;

  [[nodiscard]] Scope scope_between(int node, int other) const;
  [[nodiscard]] const Link& link_of(Scope scope) const;

  [[nodiscard]] std::array<Link*, 3> links() { return {&node_link, &switch_link, &network_link}; }
};

// Reads the list "nodes" of a cluster or cost file, of one kind at least.
[[nodiscard]] std::vector<Cluster::Nodes> read_nodes(JsonReader& document);

// Reads the list "links" of them. Returns which scopes it gives.
std::array<bool, 3> read_links(JsonReader& document, Cluster& cluster);

// Throws ConfigError that starts with the path.
[[nodiscard]] Cluster read_cluster(const std::string& path);

// The same for network.links: emulated links carry every message as soon as it is sent.
[[nodiscard]] Cluster read_emulated_cluster(const std::string& path);

}  // namespace slackline
