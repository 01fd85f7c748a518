#include "parallel/mesh/executor_bytes.h"

#include <algorithm>

#include "parallel/schedule/slots.h"

namespace slackline {

Stage::Options chunk_options(const ExecutorPlan& plan, const ChunkSlice& chunk) {
  Stage::Options stage = plan.stage;
  stage.chunk = chunk;
  stage.own_slot = false;
  return stage;
}

std::size_t slot_bytes(const ModelConfig& config, const ExecutorPlan& plan) {
  std::size_t bytes = 0;
  for (const ChunkSlice& chunk : plan.chunks) {
    bytes = std::max(bytes, Stage::activation_bytes(config, chunk_options(plan, chunk)));
  }
  return bytes;
}

std::size_t activation_bytes(const ModelConfig& config,
                             const ExecutorPlan& plan,
                             int pipeline_rank) {
  const schedule::SlotMap slots = schedule::input_slots(plan.schedule());
  return slot_bytes(config, plan) *
         static_cast<std::size_t>(slots.num_slots[static_cast<std::size_t>(pipeline_rank)]);
}

std::size_t executor_workspace_bytes(const ModelConfig& config,
                                     const ExecutorPlan& plan,
                                     const Workers& workers) {
  std::size_t bytes = 0;
  for (const ChunkSlice& chunk : plan.chunks) {
    bytes = std::max(bytes, Stage::workspace_bytes(config, chunk_options(plan, chunk), workers));
  }
  return bytes;
}

}  // namespace slackline
