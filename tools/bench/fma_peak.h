#pragma once

#include "core/threads/thread_pool.h"

namespace slackline {

// The fp32 rate that the pool's threads reach together when they do nothing but multiply and add
// in registers, in floating-point operations a second: what matrix products are measured against.
// Takes about 10 ms. Clocks move with load and temperature, so measure it right beside the work.
[[nodiscard]] double fma_peak_flops(ThreadPool& pool);

}  // namespace slackline
