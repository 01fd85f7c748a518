#pragma once

#include "parallel/plan/cost_model.h"

namespace slackline::schedule {

// Costs that are the same for each of `num_stages` virtual stages, without transfers.
[[nodiscard]] inline CostModel uniform_costs(int num_stages, const ChunkCosts& costs) {
  return {.chunks = std::vector<ChunkCosts>(static_cast<std::size_t>(num_stages), costs)};
}

}  // namespace slackline::schedule
