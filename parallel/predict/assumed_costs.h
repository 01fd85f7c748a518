#pragma once

#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/step_costs.h"

namespace slackline {

[[nodiscard]] CostLayout layout_of(const MeshJob& job);

// Costs of all parts from their floating-point operations.
[[nodiscard]] StepCosts assumed_costs(const ModelConfig& model, const AssumedSpeeds& speeds);

// Shares of a virtual stage's passes, by their operations.
struct PartShares {
  double layer_forward = 0.0;   // of one layer in the forward pass
  double layer_backward = 0.0;  // of one layer in a whole backward pass
  double layer_input = 0.0;     // of one layer in a backward pass without weights' gradients
  double layer_weight = 0.0;    // of one layer's weights' gradients in a whole backward pass
  double head_backward = 0.0;   // of the head in a whole backward pass
};

// REQUIRES: the stage has a layer. Head and embedding make the gradients
// of their tables with their inputs', whatever the schedule.
[[nodiscard]] PartShares part_shares(const ModelConfig& model, const ChunkSlice& stage);

// Adds the costs of parts to costs of virtual stages measured on `job`, so that they serve other
// layouts too: a pass' seconds are shared out like the parts' operations. Parts that were measured
// stay. Sets the layout.
[[nodiscard]] StepCosts with_parts(const MeshJob& job, StepCosts measured);

}  // namespace slackline
