#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/parameters.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// What a rank at a place of the mesh holds and exchanges with tensor and data ranks; nothing is
// allocated. Not copied: the plan points into the parameters.
struct RankSync {
  RankSync(const MeshJob& job, const MeshPlace& place)
      : parameters(describe_parameters(job, place)),
        rank(rank_plan_with(job, place, parameters)),
        plan(make_sync_plan(parameters, rank)) {}

  ~RankSync() = default;
  RankSync(const RankSync&) = delete;
  RankSync& operator=(const RankSync&) = delete;

  std::vector<Parameter> parameters;
  RankPlan rank;
  SyncPlan plan;
};

// What the first data rank at each place of a job's mesh has, made when it is first asked for.
// One thread at a time.
class MeshLists {
 public:
  explicit MeshLists(const MeshJob& job) : job_(job) {}

  [[nodiscard]] const MeshJob& job() const { return job_; }

  [[nodiscard]] const RankSync& at(int pipeline, int tensor = 0) const {
    std::unique_ptr<RankSync>& rank = ranks_[{pipeline, tensor}];
    if (rank == nullptr) {
      rank = std::make_unique<RankSync>(job_, MeshPlace{.tensor = tensor, .pipeline = pipeline});
    }
    return *rank;
  }

 private:
  MeshJob job_;
  mutable std::map<std::pair<int, int>, std::unique_ptr<RankSync>> ranks_{};
};

}  // namespace slackline
