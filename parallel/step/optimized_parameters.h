#pragma once

#include <vector>

#include "optim/adamw_optimizer.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Every element of the parameters that one rank alone trains.
[[nodiscard]] std::vector<OptimizedTensor> optimized_parameters(const Parameters& parameters,
                                                                bool decay_embeddings);

}  // namespace slackline
