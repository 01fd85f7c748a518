#pragma once

#include "core/comm/collective_bytes.h"
#include "core/comm/links/cluster.h"
#include "parallel/mesh/parallel_config.h"
#include "parallel/plan/cost_model.h"

namespace slackline {

// The links of one communicator's ranks as its collectives see them, those of all replicas going at
// the same time. Where its ranks span several links, the slowest counts.
struct CollectiveLinks {
  int ranks = 1;
  schedule::Link direct{};     // from every rank to every other one
  schedule::Link inside{};     // from every rank to those of its group
  schedule::Link to_group{};   // from every rank to its place in one other group
  schedule::Link to_groups{};  // from every rank to its place in all other groups
};

// Says what a collective takes: its exchanges follow one another, and each arrives a latency after
// the links have carried it.
struct CollectiveTimes {
  schedule::Seconds service{};  // that the links are busy, over all exchanges
  int exchanges = 1;
  schedule::Seconds latency{};  // of one exchange; a mean where they differ

  [[nodiscard]] schedule::Seconds seconds() const {
    return service + static_cast<double>(exchanges) * latency;
  }
};

// All data ranks at a place of the pipeline, or at every one (kEveryPlace), and all
// holders of a tied table on two stages.
// REQUIRES: the cluster has a device for every rank.
[[nodiscard]] CollectiveLinks data_links(const ParallelConfig& config,
                                         const Cluster& cluster,
                                         int place);
[[nodiscard]] CollectiveLinks table_links(const ParallelConfig& config, const Cluster& cluster);

// Ranks that go directly.
[[nodiscard]] CollectiveLinks direct_links(int ranks, const schedule::Link& link);

// Reckons collectives of one way. Let c be a slice (the tensor / ranks), g the groups, t_i the time
// of a slice to each rank of the group, and t_e of one to another group. A reduce-scatter or a
// gather takes
//   directly     one exchange of c between everybody
//   sequential   g slices inside the group at once, then one to each of the other groups
//   overlapped   (g - 1) max(t_e, t_i) + t_i
// and an all-reduce both, or, directly, one exchange of all of it where two ranks add or
// the tensor is small.
// REQUIRES: the call is an all_reduce, reduce_scatter or all_gather.
[[nodiscard]] CollectiveTimes times_of(const CollectiveLinks& links, const CollectiveCall& call);

// The same for a call that goes `way`, whatever its hierarchy says of its size.
[[nodiscard]] CollectiveTimes times_of(const CollectiveLinks& links,
                                       const CollectiveCall& call,
                                       Hierarchy::Way way);

// Calls that follow one another. REQUIRES: one of them makes an exchange.
[[nodiscard]] CollectiveTimes sum_of(const CollectiveTimes& a, const CollectiveTimes& b);

// The adapter of a node (schedule::Link::ends) that the call passes for most of its time, so that
// other stages' transfers over it go before or after; none: negative.
[[nodiscard]] int end_of(const CollectiveLinks& links, const CollectiveCall& call);

}  // namespace slackline
