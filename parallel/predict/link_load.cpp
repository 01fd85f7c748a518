#include "parallel/predict/link_load.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace slackline {

namespace {

using schedule::Seconds;

enum class Server { pair, inside_node, out_of_node, into_node };

using ServerKey = std::tuple<Server, int, int>;  // of a pair, or of a node and 0

// What a message passes, as core/comm/links/link_model.h has it.
std::vector<ServerKey> servers_of(const Cluster& cluster, const RankPair& message) {
  const int from_node = cluster.node_of(message.from);
  const int to_node = cluster.node_of(message.to);
  const bool inside = from_node == to_node;
  const Cluster::Link& link = inside ? cluster.node_link : cluster.network_link;
  if (link.shared_by == Cluster::SharedBy::pair) {
    const bool swap = !link.duplex && message.from > message.to;
    return {swap ? ServerKey{Server::pair, message.to, message.from}
                 : ServerKey{Server::pair, message.from, message.to}};
  }
  if (inside) {
    return {{Server::inside_node, from_node, 0}};
  }
  return {{Server::out_of_node, from_node, 0},
          {link.duplex ? Server::into_node : Server::out_of_node, to_node, 0}};
}

// Numbers for what ranks of a node share.
std::array<int, 2> ends_of(const std::vector<ServerKey>& servers) {
  constexpr int kServersOfNode = 3;
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
    const bool inside = cluster.node_of(message.from) == cluster.node_of(message.to);
    const Cluster::Link& link = inside ? cluster.node_link : cluster.network_link;
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
