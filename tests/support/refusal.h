#pragma once

#include <string>

namespace slackline::testing {

// Returns the message of the E that act() throws, or "accepted" where it throws nothing.
template <typename E, typename Act>
[[nodiscard]] std::string refusal_of(const Act& act) {
  try {
    static_cast<void>(act());
  } catch (const E& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace slackline::testing
