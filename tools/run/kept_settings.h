#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/checkpoint/checkpoint.h"
#include "data/data_members.h"
#include "tools/config/train_config.h"

namespace slackline {

// The settings that a run's state depends on, and those that are decided once, when the run starts,
// where its config leaves them open. A checkpoint keeps both. A run that goes on from it must have
// the same of the first kind, or its numbers would be those of neither run, and keeps those of the
// second kind that its config leaves open.

// Writes the weights that the data sets have into the config. REQUIRES: they were opened for it.
void settle_weights(const DataMembers& members, TrainConfig& config);

// Sets what the config leaves open to what the checkpoint holds. Returns, as text, the settings
// that a checkpoint of an older Slackline does not hold and that stay at the defaults it had; none
// for newer ones. Throws FileError where the checkpoint holds weights only, or no such settings,
// and ConfigError for another number of training data sets.
[[nodiscard]] std::vector<std::string> keep_settings(const Checkpoint& checkpoint,
                                                     TrainConfig& config);

// Throws ConfigError, naming the first key, unless the config may go on from the whole state of
// this checkpoint: the same model (dropout and recomputation aside), seed, batch and data, and not
// fewer steps than are done. Throws FileError where the checkpoint holds weights only, or not the
// tensors of its model.
void require_same_run(const Checkpoint& checkpoint, const TrainConfig& config);

// What a manifest's data document holds of the settings: "identity", of the first kind without the
// model, and "settings", which may change from one run to the next.
[[nodiscard]] nlohmann::ordered_json identity_json(const TrainConfig& config);
[[nodiscard]] nlohmann::ordered_json settings_json(const TrainConfig& config);

// The resolved config `text` with what was decided after it was read.
[[nodiscard]] std::string resolved_text(const std::string& text, const TrainConfig& config);

}  // namespace slackline
