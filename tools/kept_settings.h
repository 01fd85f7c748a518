#pragma once

#include <string>

#include "core/checkpoint/checkpoint.h"
#include "tools/train_config.h"

namespace slackline {

// The settings that a run's state depends on. A checkpoint keeps them, and a run that goes on from
// it must have the same ones, or its numbers would be those of neither run.

// Throws ConfigError, naming the first key, unless the config may go on from the whole state of
// this checkpoint: the same model (dropout and recomputation aside), seed, batch and data, and not
// fewer steps than are done. Throws FileError where the checkpoint holds weights only, or not the
// tensors of its model.
void require_same_run(const Checkpoint& checkpoint, const TrainConfig& config);

// The settings besides the model, as JSON text for a manifest.
[[nodiscard]] std::string identity_json(const TrainConfig& config);

}  // namespace slackline
