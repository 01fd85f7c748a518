#pragma once

#include <cstddef>

#include "core/tensor/device.h"

namespace slackline::testing {

// The device that a test program is for, decided by which of test_device_cpu.cpp and
// test_device_cuda.cpp it links: the same tests of ops run on each.
[[nodiscard]] Device test_device();

// Memory that both the host and ops of that device read and write.
[[nodiscard]] std::byte* allocate_for_test(std::size_t bytes);
void release_of_test(std::byte* memory);

// Blocks until all ops are done.
void wait_for_test_device();

}  // namespace slackline::testing
