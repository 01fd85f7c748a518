#pragma once

#include <cstddef>

#include "core/stream.h"
#include "core/tensor.h"
#include "core/workers.h"

namespace slackline {

// Sum of squares of an f32 tensor in double: blocks that depend on its size alone, each summed over
// fixed lanes, then blocks in order. The same bits for any number of threads. An Inf or NaN in the
// input makes the result not finite. Waits for the stream.
[[nodiscard]] double sum_of_squares(StreamView stream, const Tensor& tensor);
[[nodiscard]] std::size_t sum_of_squares_workspace_bytes(std::size_t num_elements,
                                                         const Workers& workers);

}  // namespace slackline
