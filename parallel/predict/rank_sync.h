#pragma once

#include <vector>

#include "model/parameters.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// What a rank at a place of the mesh holds and exchanges with tensor and data ranks; nothing is
// allocated. Not copied: the plan points into the parameters.
struct RankSync {
  RankSync(const MeshJob& job, const MeshPlace& place)
      : rank(make_rank_plan(job, place)),
        parameters(Parameters::describe(job.model, rank.slice)),
        plan(make_sync_plan(parameters, rank)) {}

  RankSync(const RankSync&) = delete;
  RankSync& operator=(const RankSync&) = delete;

  RankPlan rank;
  std::vector<Parameter> parameters;
  SyncPlan plan;
};

}  // namespace slackline
