#pragma once

#include <optional>
#include <string>

#include "tools/cli/command_line.h"
#include "tools/infer/model_loader.h"

namespace slackline {

// `--compression on|off` of commands that run a trained model: whether activations pass through the
// codecs that compressed them in training. Empty: not given.
using CompressionOption = std::optional<std::string>;

// `otherwise` says in the help what happens without it.
void add_compression_option(Command command,
                            CompressionOption& value,
                            const std::string& otherwise);

// Throws ConfigError for `on` where training compressed no activations.
void check_compression_option(const CompressionOption& value,
                              const std::string& checkpoint,
                              const InferenceModel& model);

}  // namespace slackline
