#include "parallel/predict/axis_links.h"

#include <algorithm>
#include <cstddef>

#include "core/comm/collective_bytes.h"

namespace slackline {

namespace {

constexpr const char* kPipeline = "pipeline";
constexpr const char* kData = "data";

void add_all_pairs(const std::vector<int>& group, std::vector<RankPair>& messages) {
  for (const int from : group) {
    for (const int to : group) {
      if (from != to) {
        messages.push_back({.from = from, .to = to});
      }
    }
  }
}

}  // namespace

// Counts each group once, by its first rank.
schedule::Link group_link(const ParallelConfig& config,
                          const Cluster& cluster,
                          const char* axis,
                          int place) {
  const Mesh mesh = make_mesh(config);
  std::vector<RankPair> messages;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const bool counts = place == kEveryPlace || mesh.coordinate(rank, kPipeline) == place;
    if (counts && mesh.coordinate(rank, axis) == 0) {
      add_all_pairs(mesh.line(rank, axis), messages);
    }
  }
  return slowest_link(cluster, messages, kTypicalBytes);
}

schedule::Link table_link(const ParallelConfig& config,
                          const Cluster& cluster,
                          EmbeddingSync sync) {
  const Mesh mesh = make_mesh(config);
  const bool fused = sync == EmbeddingSync::fused;
  std::vector<RankPair> messages;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, kPipeline) != 0 || (fused && mesh.coordinate(rank, kData) != 0)) {
      continue;
    }
    std::vector<int> holders;
    for (const int replica : fused ? mesh.line(rank, kData) : std::vector<int>{rank}) {
      holders.push_back(replica);
      holders.push_back(mesh.line(replica, kPipeline).back());
    }
    add_all_pairs(holders, messages);
  }
  return slowest_link(cluster, messages, kTypicalBytes);
}

schedule::Link outer_link(const ParallelConfig& config, const Cluster& cluster) {
  const Mesh mesh = make_mesh(config);
  std::vector<RankPair> messages;
  for (int rank = 0; rank < mesh.size() / config.num_groups(); ++rank) {  // of the first worker
    add_all_pairs(mesh.line(rank, kAcrossGroupsAxis), messages);
  }
  return slowest_link(cluster, messages, kTypicalBytes);
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
  schedule::Link link = slowest_link(cluster, messages, kTypicalBytes);
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
  const auto bytes = static_cast<double>((tensors + 2) * sizeof(double));
  return {all_reduce_exchanges(ranks, bytes) * latency};
}

int all_reduce_exchanges(int ranks, double bytes) {
  return exchanges_all(static_cast<std::size_t>(bytes), ranks) ? 1 : 2;
}

schedule::Seconds all_reduce_service(const schedule::Link& link, int ranks, double bytes) {
  return all_reduce_exchanges(ranks, bytes) == 1 ? slices_service(link, 1, bytes)
                                                 : 2.0 * slices_service(link, ranks, bytes);
}

schedule::Seconds slices_service(const schedule::Link& link, int ranks, double bytes) {
  return {link.bytes_per_second > 0.0 ? bytes / ranks / link.bytes_per_second : 0.0};
}

schedule::Seconds all_reduce_seconds(const schedule::Link& link, int ranks, double bytes) {
  return all_reduce_service(link, ranks, bytes) +
         static_cast<double>(all_reduce_exchanges(ranks, bytes)) * link.latency;
}

schedule::Seconds slices_seconds(const schedule::Link& link, int ranks, double bytes) {
  return slices_service(link, ranks, bytes) + link.latency;
}

}  // namespace slackline
