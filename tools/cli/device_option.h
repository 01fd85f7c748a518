#pragma once

#include <string>

#include "core/tensor/device.h"
#include "tools/cli/command_line.h"

namespace slackline {

// `--device cpu|cuda` of commands that run a trained model in one process.
using DeviceOption = std::string;

inline constexpr const char* kDefaultDevice = "cpu";

void add_device_option(Command command, DeviceOption& value);

// The device that the option names, made ready for the calling thread. Throws, as train does,
// ConfigError in a program without the CUDA backend and DeviceError where no device can be used.
[[nodiscard]] Device use_device(const DeviceOption& value);

}  // namespace slackline
