#pragma once

#include <string>

#include "core/error.h"

namespace slackline {

// Runs `read`, whose ConfigErrors become errors of type Thrown that begin with the file's `path`.
// Readers of configs, plans and costs say ConfigError, but where the user gave a directory, what is
// in it is wrong (code 3).
template <typename Thrown = FileError, typename Read>
auto reading(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    throw Thrown(message.starts_with(path) ? message : path + ": " + message);
  }
}

}  // namespace slackline
