#pragma once

#include "core/tensor/device.h"

namespace slackline {

// Who runs ops, as far as their scratch depends on it. A number of threads is that many of the CPU.
struct Workers {
  int num_threads = 1;
  Device device = Device::cpu;

  Workers() = default;

  Workers(int threads, Device where = Device::cpu)  // NOLINT(google-explicit-constructor)
      : num_threads(threads), device(where) {}
};

}  // namespace slackline
