#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/stream.h"
#include "core/tensor/workers.h"
#include "tests/support/catch.h"
#include "tests/support/test_device.h"

namespace slackline::testing {

// A stream of test_device() for one test: `num_threads` threads and scratch memory.
[[nodiscard]] inline Stream::Options test_stream(int num_threads, std::size_t workspace_bytes = 0) {
  return {.name = "test",
          .device = test_device(),
          .num_threads = num_threads,
          .workspace_bytes = workspace_bytes};
}

[[nodiscard]] inline Workers test_workers(int num_threads = 1) {
  return {num_threads, test_device()};
}

// Requires that run(stream), which returns the bytes of its outputs, gives the same bits on 1, 2
// and 3 threads.
template <typename Run>
void require_same_bits_for_any_thread_count(std::size_t workspace_bytes, const Run& run) {
  std::vector<std::byte> expected;
  for (const int num_threads : {1, 2, 3}) {
    Stream stream(test_stream(num_threads, workspace_bytes));
    const std::vector<std::byte> bytes = run(stream);
    if (num_threads == 1) {
      expected = bytes;
    }
    INFO(num_threads << " threads");
    REQUIRE(bytes == expected);
  }
}

}  // namespace slackline::testing
