#pragma once

#include <optional>

#include "core/comm/links/cluster.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/plan/step_costs.h"
#include "parallel/predict/timeline/timeline.h"
#include "parallel/sync/rank_sync.h"

namespace slackline {

// Absent: nothing is known of links. Transfers then take what was measured of them, or no time.
using LinkSpeeds = std::optional<Cluster>;

// The costs of a step of `job`, for its timeline. The pipeline ranks of all replicas do the same at
// the same time, so one pipeline stands for all of them; what they share of a link is counted.
//
//   compute    costs of virtual stages where they were measured on this layout, else of parts
//   tensor     its transfers are added to the passes that wait for them
//   pipeline   whole messages of all tensor ranks, over links as fast as all of theirs
//   data       the sums of the sync plan, at the place in backward that completes them
//
// Throws ConfigError, without a file's name, where costs of neither stages nor parts cover the job.
// REQUIRES: the cluster has a device for every rank.
[[nodiscard]] schedule::CostModel cost_model(const MeshJob& job,
                                             const StepCosts& costs,
                                             const LinkSpeeds& links);

// The same for a job whose lists are there already. Sums and gathers of passes travel as `plan`
// says; what codecs make of all else belongs into the model's `compressed`.
[[nodiscard]] schedule::CostModel cost_model(const MeshLists& lists,
                                             const StepCosts& costs,
                                             const LinkSpeeds& links,
                                             const CompressionPlan& plan = {});

// Predicts a job's step, with what the plan compresses. Codecs that were not measured take what is
// assumed.
[[nodiscard]] schedule::Timeline predicted_timeline(const MeshLists& lists,
                                                    const StepCosts& costs,
                                                    const LinkSpeeds& links,
                                                    const CompressionPlan& plan = {});

// Links of a cost file between its nodes, and as many more like the last as the ranks need; without
// nodes all ranks stand on one. Nothing where it has no links.
[[nodiscard]] LinkSpeeds measured_links(const StepCosts& costs, int num_ranks);

}  // namespace slackline
