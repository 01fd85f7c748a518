#pragma once

#include <algorithm>
#include <cstddef>

#include "core/tensor/stream.h"

namespace slackline {

// Elements of one task of an element-wise op: a few microseconds of work, far more than it costs
// to hand out a task.
inline constexpr std::size_t kElementsPerTask = 16384;

// Runs body(begin, end) over [0, count), cut into ranges of `range_size` (the last one may be
// shorter), on the stream's threads. The cut depends on the arguments alone, so results that are
// made range by range do not depend on the number of threads.
template <typename Body>
void parallel_ranges(StreamView stream, std::size_t count, std::size_t range_size, Body body) {
  const std::size_t num_ranges = (count + range_size - 1) / range_size;
  stream.pool().parallel_for(num_ranges, [&](std::size_t range, int /*thread*/) {
    const std::size_t begin = range * range_size;
    body(begin, std::min(count, begin + range_size));
  });
}

}  // namespace slackline
