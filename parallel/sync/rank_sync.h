#pragma once

#include <array>
#include <map>
#include <memory>
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

// Holds the lists of ranks at each place of a job's mesh, made when they are first asked for: those
// of the first data rank, unless another one is named. One thread at a time.
class MeshLists {
 public:
  explicit MeshLists(const MeshJob& job) : job_(job) {}

  [[nodiscard]] const MeshJob& job() const { return job_; }

  [[nodiscard]] const RankSync& at(int pipeline, int tensor = 0, int data = 0) const {
    std::unique_ptr<RankSync>& rank = ranks_[{pipeline, tensor, data}];
    if (rank == nullptr) {
      rank = std::make_unique<RankSync>(
          job_, MeshPlace{.tensor = tensor, .data = data, .pipeline = pipeline});
    }
    return *rank;
  }

 private:
  MeshJob job_;
  mutable std::map<std::array<int, 3>, std::unique_ptr<RankSync>> ranks_{};
};

}  // namespace slackline
