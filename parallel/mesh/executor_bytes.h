#pragma once

#include <cstddef>

#include "core/tensor/workers.h"
#include "parallel/mesh/rank_plan.h"

namespace slackline {

// How the stage of one of a rank's chunks is made.
[[nodiscard]] Stage::Options chunk_options(const ExecutorPlan& plan, const ChunkSlice& chunk);

// Returns the bytes of one slot. Chunks share it, so it fits the largest chunk's activations.
[[nodiscard]] std::size_t slot_bytes(const ModelConfig& config, const ExecutorPlan& plan);

// Returns the bytes of all slots of a rank.
[[nodiscard]] std::size_t activation_bytes(const ModelConfig& config,
                                           const ExecutorPlan& plan,
                                           int pipeline_rank);

// What the executor's stream must offer.
[[nodiscard]] std::size_t executor_workspace_bytes(const ModelConfig& config,
                                                   const ExecutorPlan& plan,
                                                   const Workers& workers);

}  // namespace slackline
