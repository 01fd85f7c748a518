#pragma once

#include <cstdlib>
#include <string>

namespace slackline {

// Where tests find their files and the binary: in the tree they were built in, or where an
// installed bundle (cmake/SlacklineInstall.cmake) puts them and tools/gpu says so.
[[nodiscard]] inline std::string test_place(const char* variable, const char* built) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? built : value;
}

}  // namespace slackline
