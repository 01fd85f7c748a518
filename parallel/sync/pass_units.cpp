#include "parallel/sync/pass_units.h"

namespace slackline {

namespace {

using Unit = GradientBucket::Unit;
using schedule::Op;
using schedule::OpKind;

void add_units(const ChunkSlice& chunk, OpKind kind, bool later, std::vector<Unit>& made) {
  const bool weights = kind == OpKind::backward_weight;
  if (!weights && chunk.head) {
    made.emplace_back(ModelPart::head, -1);
  }
  for (int layer = chunk.last_layer; weights == later && layer-- > chunk.first_layer;) {
    made.emplace_back(ModelPart::layer, layer);
  }
  if (!weights && chunk.embedding) {
    made.emplace_back(ModelPart::embedding, -1);
  }
}

}  // namespace

std::vector<Unit> units_as_made(const RankPlan& rank) {
  const schedule::Schedule& schedule = rank.executor.schedule();
  const bool later = rank.executor.stage.weight_gradients == Stage::WeightGradients::later;
  std::vector<Unit> made;
  for (const Op& op : schedule.ranks[static_cast<std::size_t>(rank.sync.place.pipeline)]) {
    const bool makes_gradients = op.kind == OpKind::backward || op.kind == OpKind::backward_input ||
                                 op.kind == OpKind::backward_weight;
    if (makes_gradients && op.micro_batch + 1 == schedule.num_micro_batches) {
      const auto chunk = static_cast<std::size_t>(op.chunk / schedule.num_ranks);
      add_units(rank.slice.chunks[chunk], op.kind, later, made);
    }
  }
  return made;
}

std::vector<Unit> units_as_used(const RankPlan& rank, bool evaluates) {
  const schedule::Schedule& schedule =
      evaluates ? rank.executor.evaluation() : rank.executor.schedule();
  const auto place = static_cast<std::size_t>(rank.sync.place.pipeline);
  std::vector<Unit> used;
  for (const Op& op : schedule.ranks[place]) {
    const ChunkSlice& chunk =
        rank.slice.chunks[static_cast<std::size_t>(op.chunk / schedule.num_ranks)];
    const bool forward = op.kind == OpKind::forward;
    const bool backward = op.kind == OpKind::backward || op.kind == OpKind::backward_input;
    if (forward && chunk.embedding) {
      used.emplace_back(ModelPart::embedding, -1);
    }
    if (chunk.head && backward) {
      used.emplace_back(ModelPart::head, -1);
    }
    for (int i = 0; (forward || backward) && i < chunk.num_layers(); ++i) {
      used.emplace_back(ModelPart::layer,
                        forward ? chunk.first_layer + i : chunk.last_layer - 1 - i);
    }
    if (chunk.head && forward && evaluates) {
      used.emplace_back(ModelPart::head, -1);
    }
  }
  return used;
}

}  // namespace slackline
