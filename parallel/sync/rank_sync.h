#pragma once

#include <array>
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
      : RankSync(job, place, make_schedules(job)) {}

  RankSync(const MeshJob& job,
           const MeshPlace& place,
           std::shared_ptr<const StepSchedules> schedules)
      : parameters(describe_parameters(job, place)),
        rank(rank_plan_with(job, place, parameters, std::move(schedules))),
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
  explicit MeshLists(const MeshJob& job) : job_(job), schedules_(make_schedules(job)) {}

  [[nodiscard]] const MeshJob& job() const { return job_; }

  [[nodiscard]] const schedule::Schedule& schedule() const { return schedules_->training; }

  [[nodiscard]] const RankSync& at(int pipeline, int tensor = 0, int data = 0) const {
    std::unique_ptr<RankSync>& rank = ranks_[{pipeline, tensor, data}];
    if (rank == nullptr) {
      rank = std::make_unique<RankSync>(
          job_, MeshPlace{.tensor = tensor, .data = data, .pipeline = pipeline}, schedules_);
    }
    return *rank;
  }

 private:
  MeshJob job_;
  std::shared_ptr<const StepSchedules> schedules_;
  mutable std::map<std::array<int, 3>, std::unique_ptr<RankSync>> ranks_{};
};

}  // namespace slackline
