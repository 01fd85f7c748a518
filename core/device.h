#pragma once

#include <string_view>

namespace slackline {

enum class Device { cpu, cuda };

[[nodiscard]] constexpr std::string_view name_of(Device device) {
  return device == Device::cpu ? "cpu" : "cuda";
}

}  // namespace slackline
