#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace slackline {

// Starts a thread that runs `run`. Throws DeviceError, which says what it was for ("a checkpoint"),
// where the system has none left.
template <typename Run>
[[nodiscard]] std::thread start_thread(const char* what, Run run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& problem) {
    throw DeviceError(std::string("cannot start the thread of ") + what + ": " + problem.what());
  }
}

}  // namespace slackline
