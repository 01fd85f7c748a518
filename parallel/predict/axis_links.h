#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/comm/links/cluster.h"
#include "parallel/mesh/mesh.h"
#include "parallel/plan/cost_model.h"

namespace slackline {

// The links of a cluster as the transfers of a mesh see them, every group of an axis at one place
// of the pipeline exchanging at the same time. Where a group spans several links, its slowest
// counts. REQUIRES, for each call: the cluster has a device for every rank.

// Messages inside all of these groups of ranks: from each place in a group to each other one where
// `is_sent`.
[[nodiscard]] schedule::Link link_inside(
    const std::vector<std::vector<int>>& groups,
    const Cluster& cluster,
    const std::function<bool(int from, int to)>& is_sent = [](int, int) { return true; });

// Exchanges inside all groups of an axis at a place of the pipeline, or at every one (kEveryPlace).
[[nodiscard]] schedule::Link group_link(const ParallelConfig& config,
                                        const Cluster& cluster,
                                        const char* axis,
                                        int place);

// Exchanges between the two ends of every pipeline.
[[nodiscard]] schedule::Link table_link(const ParallelConfig& config, const Cluster& cluster);

// Messages of all tensor ranks together from one place of the pipeline to another.
[[nodiscard]] schedule::Link boundary_link(const ParallelConfig& config,
                                           const Cluster& cluster,
                                           int from,
                                           int to);

// Returns how long a step's agreement takes: a double of each of so many tensors, and two more,
// travel from everybody to everybody.
[[nodiscard]] schedule::Seconds agreement_seconds(const ParallelConfig& config,
                                                  const Cluster& cluster,
                                                  std::size_t tensors);

}  // namespace slackline
