#pragma once

#include <cstddef>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/predict/link_load.h"

namespace slackline {

// The links of a cluster as the transfers of a mesh see them, every group of an axis at one place
// of the pipeline exchanging at the same time. Where a group spans several links, its slowest
// counts. REQUIRES, for each call: the cluster has a device for every rank.

// Links with different latencies and speeds are compared at this size.
inline constexpr double kTypicalBytes = 1 << 20;

// In place of one place of the pipeline: all of them, exchanging at the same time.
inline constexpr int kEveryPlace = -1;

// Exchanges inside all tensor or data groups at a pipeline place.
[[nodiscard]] schedule::Link group_link(const ParallelConfig& config,
                                        const Cluster& cluster,
                                        const char* axis,
                                        int place);

// Exchanges between the two ends of the pipelines, of all replicas together (fused) or each alone.
[[nodiscard]] schedule::Link table_link(const ParallelConfig& config,
                                        const Cluster& cluster,
                                        EmbeddingSync sync);

// Sums over the ranks at one place of every worker, all places at the same time.
[[nodiscard]] schedule::Link outer_link(const ParallelConfig& config, const Cluster& cluster);

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

// Collectives of `bytes` over such a link by n ranks, each of which sends 1 / n of it to each other
// one; an all-reduce does so twice, or sends all of it once where two ranks add or it is small. The
// link is busy for the service; each exchange arrives a latency later.
[[nodiscard]] int all_reduce_exchanges(int ranks, double bytes);
[[nodiscard]] schedule::Seconds all_reduce_service(const schedule::Link& link,
                                                   int ranks,
                                                   double bytes);
[[nodiscard]] schedule::Seconds slices_service(const schedule::Link& link, int ranks, double bytes);

// The same with the latencies.
[[nodiscard]] schedule::Seconds all_reduce_seconds(const schedule::Link& link,
                                                   int ranks,
                                                   double bytes);
[[nodiscard]] schedule::Seconds slices_seconds(const schedule::Link& link, int ranks, double bytes);

}  // namespace slackline
