#pragma once

#include <vector>

#include "optim/adamw_optimizer.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// What a rank updates as its optimizer sees it: named views with gradients, in the order of the
// pieces. They stay valid as long as the parameters.
[[nodiscard]] std::vector<OptimizedTensor> optimized_parameters(
    const std::vector<OptimizerPiece>& pieces, bool decay_embeddings);

// Every element of the parameters that one rank alone trains.
[[nodiscard]] std::vector<OptimizedTensor> optimized_parameters(const Parameters& parameters,
                                                                bool decay_embeddings);

}  // namespace slackline
