#pragma once

#include <utility>
#include <vector>

#include "parallel/plan/step_waits.h"
#include "parallel/step/mesh_model.h"

namespace slackline {

// The stretches of a step in which a rank waited for transfers, whatever the axis. Where several
// waits overlap, as those of a CUDA stream may, a moment counts once.
class WaitStretches {
 public:
  explicit WaitStretches(const std::vector<Wait>& transfers);

  // Seconds between two times of the world's clock that were not spent waiting.
  [[nodiscard]] double not_waited(double begin, double end) const;

 private:
  std::vector<std::pair<double, double>> stretches_;  // begin and end, ascending and apart
};

// Seconds that a rank computed in a step: its passes, the squares of its gradients and the update,
// without what it waited for transfers meanwhile.
[[nodiscard]] double compute_seconds(const MeshModel::StepTimes& times, const WaitStretches& waits);

}  // namespace slackline
