#pragma once

#include <array>
#include <cstdint>

namespace slackline {

// What a check of data found wrong, as words of its own kind, and who tells: raise() throws. On the
// CUDA device a kernel writes the first fault of a stream down, and Stream::synchronize() raises
// it; data that depends on what was wrong has been written by then, but inside its own memory.
struct DeviceFault {
  void (*raise)(const DeviceFault& fault) = nullptr;  // null: nothing is wrong
  std::array<std::uint32_t, 8> words{};
};

}  // namespace slackline
