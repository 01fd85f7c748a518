#pragma once

#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/step_costs.h"

namespace slackline {

[[nodiscard]] CostLayout layout_of(const MeshJob& job);

// Costs of all parts from their floating-point operations.
[[nodiscard]] StepCosts assumed_costs(const ModelConfig& model, const AssumedSpeeds& speeds);

// Adds the costs of parts to costs of virtual stages measured on `job`, so that they serve other
// layouts too: a pass' seconds are shared out like the parts' operations. Parts that were measured
// stay. Sets the layout.
[[nodiscard]] StepCosts with_parts(const MeshJob& job, StepCosts measured);

}  // namespace slackline
