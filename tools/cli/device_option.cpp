#include "tools/cli/device_option.h"

#include <fmt/format.h>

#include "core/cuda/cuda_device.h"
#include "core/error.h"
#include "core/log.h"

namespace slackline {

void add_device_option(Command command, DeviceOption& value) {
  command.option(
      "--device",
      &value,
      "Where it computes: the processor, or the first CUDA device",
      {.shows_default = true,
       .one_of = {std::string(name_of(Device::cpu)), std::string(name_of(Device::cuda))}});
}

Device use_device(const DeviceOption& value) {
  if (value != name_of(Device::cuda)) {
    return Device::cpu;
  }
  if (!cuda::is_built()) {
    throw ConfigError(fmt::format("--device: {}; or use cpu; got {}", cuda::obstacle(), value));
  }
  cuda::use_device(0);
  log_info(cuda::device_text());
  return Device::cuda;
}

}  // namespace slackline
