#include "parallel/predict/axis_links.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/comm/collective_bytes.h"

namespace slackline {

namespace {

constexpr const char* kPipeline = "pipeline";

// Links with different latencies and speeds are compared at this size.
constexpr double kTypicalBytes = 1 << 20;

struct RankPair {
  int from = 0;
  int to = 0;
};

// Nodes have ways to those of their switch, and to others.
enum class Server { pair, inside_node, out_of_node, into_node, out_to_switch, in_from_switch };

using ServerKey = std::tuple<Server, int, int>;  // of a pair, or of a node and 0

Cluster::Scope scope_of(const Cluster& cluster, const RankPair& message) {
  return cluster.scope_between(cluster.node_of(message.from), cluster.node_of(message.to));
}

// Returns what a message passes, as core/comm/links/link_model.h has it.
std::vector<ServerKey> servers_of(const Cluster& cluster, const RankPair& message) {
  const int from_node = cluster.node_of(message.from);
  const int to_node = cluster.node_of(message.to);
  const Cluster::Scope scope = scope_of(cluster, message);
  const Cluster::Link& link = cluster.link_of(scope);
  if (link.shared_by == Cluster::SharedBy::pair) {
    const bool swap = !link.duplex && message.from > message.to;
    return {swap ? ServerKey{Server::pair, message.to, message.from}
                 : ServerKey{Server::pair, message.from, message.to}};
  }
  if (scope == Cluster::Scope::node) {
    return {{Server::inside_node, from_node, 0}};
  }
  const bool beyond = scope == Cluster::Scope::network;
  const Server out = beyond ? Server::out_of_node : Server::out_to_switch;
  const Server in = beyond ? Server::into_node : Server::in_from_switch;
  return {{out, from_node, 0}, {link.duplex ? in : out, to_node, 0}};
}

// Numbers for what ranks of a node share.
std::array<int, 2> ends_of(const std::vector<ServerKey>& servers) {
  constexpr int kServersOfNode = 5;
  std::array<int, 2> ends{-1, -1};
  auto end = ends.begin();
  for (const auto& [server, node, other] : servers) {
    if (server != Server::pair) {
      *end++ = node * kServersOfNode + static_cast<int>(server) - 1;
    }
  }
  return ends;
}

// The link as the slowest of these messages sees it when all of them are sent at once: a link that
// several of them pass serves each with its share of the speed. Its ends are those of nodes, where
// their ranks share them. No messages: a link that takes no time.
schedule::Link slowest_link(const Cluster& cluster, const std::vector<RankPair>& messages) {
  std::map<ServerKey, int> load;
  for (const RankPair& message : messages) {
    for (const ServerKey& server : servers_of(cluster, message)) {
      ++load[server];
    }
  }
  const auto seconds_over = [](const schedule::Link& link) {
    return schedule::service_seconds(link, kTypicalBytes) + link.latency;
  };
  schedule::Link slowest;
  for (const RankPair& message : messages) {
    int sharers = 1;
    const std::vector<ServerKey> servers = servers_of(cluster, message);
    for (const ServerKey& server : servers) {
      sharers = std::max(sharers, load[server]);
    }
    const Cluster::Link& link = cluster.link_of(scope_of(cluster, message));
    const schedule::Link seen{
        .latency = {link.latency_seconds},
        .bytes_per_second = link.bytes_per_second / sharers,
        .duplex = link.duplex ? schedule::Duplex::full : schedule::Duplex::half,
        .ends = ends_of(servers),
        .eager_bytes = link.eager_bytes};
    if (seconds_over(seen) > seconds_over(slowest)) {
      slowest = seen;
    }
  }
  return slowest;
}

}  // namespace

schedule::Link link_inside(const std::vector<std::vector<int>>& groups,
                           const Cluster& cluster,
                           const std::function<bool(int from, int to)>& is_sent) {
  std::vector<RankPair> messages;
  for (const std::vector<int>& ranks : groups) {
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      for (std::size_t to = 0; to < ranks.size(); ++to) {
        if (ranks[from] != ranks[to] && is_sent(static_cast<int>(from), static_cast<int>(to))) {
          messages.push_back({.from = ranks[from], .to = ranks[to]});
        }
      }
    }
  }
  return slowest_link(cluster, messages);
}

schedule::Link group_link(const ParallelConfig& config,
                          const Cluster& cluster,
                          const char* axis,
                          int place) {
  return link_inside(lines_at(make_mesh(config), axis, place), cluster);
}

schedule::Link table_link(const ParallelConfig& config, const Cluster& cluster) {
  std::vector<std::vector<int>> pipelines = lines_at(make_mesh(config), kPipeline, 0);
  for (std::vector<int>& line : pipelines) {
    line = {line.front(), line.back()};
  }
  return link_inside(pipelines, cluster);
}

schedule::Link boundary_link(const ParallelConfig& config,
                             const Cluster& cluster,
                             int from,
                             int to) {
  const Mesh mesh = make_mesh(config);
  std::vector<RankPair> messages;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, kPipeline) == from) {
      messages.push_back({.from = rank, .to = mesh.moved(rank, kPipeline, to)});
    }
  }
  schedule::Link link = slowest_link(cluster, messages);
  link.bytes_per_second *= config.tensor;
  link.eager_bytes *= config.tensor;
  return link;
}

schedule::Seconds agreement_seconds(const ParallelConfig& config,
                                    const Cluster& cluster,
                                    std::size_t tensors) {
  const int ranks = config.num_ranks();
  const int last_node = cluster.node_of(ranks - 1);
  double latency = ranks > 1 ? cluster.node_link.latency_seconds : 0.0;
  for (const int node : {1, last_node}) {  // a neighbour, and the farthest one
    if (node > 0 && node <= last_node) {
      latency = std::max(latency, cluster.link_of(cluster.scope_between(0, node)).latency_seconds);
    }
  }
  const std::size_t bytes = (tensors + 2) * sizeof(double);
  return {exchanges_all(bytes, ranks) ? latency : 2.0 * latency};
}

}  // namespace slackline
