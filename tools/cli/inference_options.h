#pragma once

#include <optional>
#include <string>

#include "core/tensor/workers.h"
#include "tools/cli/command_line.h"
#include "tools/infer/model_loader.h"

namespace slackline {

// The options of commands that run a trained model in one process.
struct InferenceOptions {
  std::string checkpoint{};
  // `on` or `off`: whether activations pass through the codecs that compressed them in training.
  // Empty: not given.
  std::optional<std::string> compression{};
  std::string device = "cpu";  // or cuda
};

// `otherwise` says in the help what happens without --compression.
void add_compression_option(Command command,
                            InferenceOptions& options,
                            const std::string& otherwise);

void add_device_option(Command command, InferenceOptions& options);

// Makes the device ready for the calling thread. Throws, as train does, ConfigError in a program
// without the CUDA backend and DeviceError where no device can be used.
[[nodiscard]] Workers make_workers(const InferenceOptions& options);

// Throws ConfigError where activations are to be compressed and training compressed none.
[[nodiscard]] InferenceModel open_model(const InferenceOptions& options, const Workers& workers);

}  // namespace slackline
