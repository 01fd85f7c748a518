#include "parallel/predict/axis_links.h"

#include <algorithm>
#include <cstddef>

#include "core/comm/collective_bytes.h"

namespace slackline {

namespace {

constexpr const char* kPipeline = "pipeline";

// Between all ranks of each group.
schedule::Link link_inside(const std::vector<std::vector<int>>& groups, const Cluster& cluster) {
  std::vector<RankPair> messages;
  for (const std::vector<int>& group : groups) {
    for (const int from : group) {
      for (const int to : group) {
        if (from != to) {
          messages.push_back({.from = from, .to = to});
        }
      }
    }
  }
  return slowest_link(cluster, messages, kTypicalBytes);
}

}  // namespace

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
  const std::size_t bytes = (tensors + 2) * sizeof(double);
  return {exchanges_all(bytes, ranks) ? latency : 2.0 * latency};
}

}  // namespace slackline
