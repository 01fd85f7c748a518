#pragma once

#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/contents.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"

// Outer rounds in checkpoints: the anchor stands in weights/, beside it what rounds keep.
namespace slackline {

// Lists what this rank saves of them. REQUIRES: they are settled. Views.
void add_round_state(OuterLoop& outer, int worker, std::vector<CheckpointTensor>& tensors);

// Reads them where as many workers go on as made the checkpoint. REQUIRES: the anchor and the
// worker's weights are loaded.
void load_round_state(Checkpoint& checkpoint, int worker, OuterLoop& outer);

// For another number of workers that goes on, or ranks that all step together (`outer` null): makes
// the step that the anchor is owed, and keeps the momentum where there is a place for it. All
// ranks. REQUIRES: weights are the anchor.
void take_over_rounds(Checkpoint& checkpoint, MeshModel& model, OuterLoop* outer);

}  // namespace slackline
