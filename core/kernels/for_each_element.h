#pragma once

#include <cstddef>

#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"

namespace slackline::simd {

// Calls body(i, part) for vectors of elements, all of [0, count), on the stream's threads. `body`
// is copied where the loop runs: what it captures by value stays in registers.
template <typename Body>
void for_each_element(StreamView stream, std::size_t count, const Body& body) {
  parallel_ranges(stream, count, kElementsPerTask, [&](std::size_t begin, std::size_t end) {
    for_each_vector(end - begin, [=](std::size_t i, auto part) { body(begin + i, part); });
  });
}

}  // namespace slackline::simd
