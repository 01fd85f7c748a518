#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/comm/links/cluster.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/cost_model.h"
#include "parallel/predict/step_cost_model.h"

namespace slackline {

// A round of workers that train apart, as far as it travels (docs/outer.md).
struct OuterRound {
  int workers = 1;
  std::size_t bytes = 0;                       // sent by all ranks of all workers
  std::optional<schedule::Seconds> seconds{};  // from sending to arrival; absent: no links known
};

// `job` is one worker's. Links have to be of all workers' ranks; those of fewer count as unknown.
[[nodiscard]] OuterRound outer_round(const MeshJob& job, int workers, const LinkSpeeds& links);

}  // namespace slackline
