#include <cstdlib>

#include "tests/support/test_device.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kCacheLine = 64;

}  // namespace

Device test_device() {
  return Device::cpu;
}

std::byte* allocate_for_test(std::size_t bytes) {
  const std::size_t rounded = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  return static_cast<std::byte*>(std::aligned_alloc(kCacheLine, rounded));
}

void release_of_test(std::byte* memory) {
  std::free(memory);
}

void wait_for_test_device() {}

}  // namespace slackline::testing
