#pragma once

#include <cstddef>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// The k elements of `values` (f32, any shape, fewer than 2^32 elements) largest in magnitude:
// their indices in row-major order, ascending, into `indices` (k) u32, and themselves, with sign,
// into `kept` (k), f32 or bf16 (rounded to nearest even). REQUIRES: k <= elements.
// Magnitudes compare as the bits of |x|: NaN above Inf above finite numbers, so what is not finite
// is kept first. Among equal magnitudes those of lowest index are kept. Exact and without sums:
// the same bits on any device, for any number of threads. `values` are only read.
//
// Time: one pass over the values plus little for any distribution without ties, a few passes at
// worst. Scratch on the stream's workspace: top_k_workspace_bytes().
void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept);

// Scratch that top_k() takes for k elements of n.
[[nodiscard]] std::size_t top_k_workspace_bytes(std::size_t n,
                                                std::size_t k,
                                                const Workers& workers);

}  // namespace slackline
