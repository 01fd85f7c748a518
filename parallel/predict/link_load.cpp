#include "parallel/predict/link_load.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace slackline {

namespace {

using schedule::Seconds;

// Nodes have ways to those of their switch, and to others.
enum class Server { pair, inside_node, out_of_node, into_node, out_to_switch, in_from_switch };

using ServerKey = std::tuple<Server, int, int>;  // of a pair, or of a node and 0

Cluster::Scope scope_of(const Cluster& cluster, const RankPair& message) {
  return cluster.scope_between(cluster.node_of(message.from), cluster.node_of(message.to));
}

// What a message passes, as core/comm/links/link_model.h has it.
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

Seconds seconds_over(const schedule::Link& link, double bytes) {
  const Seconds service{link.bytes_per_second > 0.0 ? bytes / link.bytes_per_second : 0.0};
  return service + link.latency;
}

}  // namespace

schedule::Link slowest_link(const Cluster& cluster,
                            const std::vector<RankPair>& messages,
                            double bytes) {
  std::map<ServerKey, int> load;
  for (const RankPair& message : messages) {
    for (const ServerKey& server : servers_of(cluster, message)) {
      ++load[server];
    }
  }
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
    if (seconds_over(seen, bytes) > seconds_over(slowest, bytes)) {
      slowest = seen;
    }
  }
  return slowest;
}

}  // namespace slackline
