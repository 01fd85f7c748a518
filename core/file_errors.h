#pragma once

#include <string>

#include "core/error.h"

namespace slackline {

// Runs `read`, whose errors are then those of the file `path`: readers of configs, plans and costs
// say ConfigError, but where the user gave a directory, what is in it is wrong (code 3).
template <typename Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    throw FileError(message.starts_with(path) ? message : path + ": " + message);
  }
}

}  // namespace slackline
