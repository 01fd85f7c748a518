#pragma once

#include <string_view>

namespace slackline {

enum class Device {
  cpu,
  cuda,
  rehearsal,  // ops compute nothing; its memory is addresses of the host
};

[[nodiscard]] constexpr std::string_view name_of(Device device) {
  switch (device) {
    case Device::cpu:
      return "cpu";
    case Device::cuda:
      return "cuda";
    case Device::rehearsal:
      break;
  }
  return "rehearsal";
}

}  // namespace slackline
