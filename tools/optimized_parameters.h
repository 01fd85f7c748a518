#pragma once

#include <vector>

#include "model/parameters.h"
#include "optim/adamw_optimizer.h"

namespace slackline {

// The model's parameters as the optimizer sees them: named views with gradients. They stay valid
// as long as `parameters`.
[[nodiscard]] std::vector<OptimizedTensor> optimized_parameters(const Parameters& parameters,
                                                                bool decay_embeddings);

}  // namespace slackline
