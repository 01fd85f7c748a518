#pragma once

#include <string>
#include <vector>

#include "core/comm/links/cluster.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// The ranks of the node that has the fewest of a run's, of those nodes that have any.
[[nodiscard]] int fewest_ranks_of_node(const std::vector<int>& nodes_of_ranks);

// The same where a job's ranks, of all its workers, stand on the nodes of links; where these have
// too few devices, of as many as there are.
[[nodiscard]] int fewest_ranks_of_node(const Cluster& links, const PlanJob& job);

// The job's parallel section with the size of groups decided, by the nodes of the links, and which
// collectives go through them.
[[nodiscard]] ParallelConfig with_decided_groups(const PlanJob& job, const LinkSpeeds& links);

// Throws ConfigError where collectives are to go through groups and there are none. REQUIRES: the
// size of groups is decided.
void require_groups(const ParallelConfig& config, CollectivesWish wish);

// Returns what to tell the user of a run that does not know its links, sums over all data ranks at
// once and has several of them on each of several nodes; empty: nothing. `nodes`: of every rank.
[[nodiscard]] std::string direct_sums_hint(const ParallelConfig& config,
                                           CollectivesWish wish,
                                           const std::vector<int>& nodes);

// Says which collectives go through groups, a line for each communicator that spans several.
[[nodiscard]] std::string collectives_text(const ParallelConfig& config, bool tied_table);

}  // namespace slackline
