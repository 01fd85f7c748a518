#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace slackline {

// Sum of squares of an f32 tensor in double: blocks of fixed size, each summed over fixed lanes,
// then blocks in order. The same bits for any number of threads. An Inf or NaN in the input makes
// the result not finite.
[[nodiscard]] double sum_of_squares(StreamView stream, const Tensor& tensor);

}  // namespace slackline
