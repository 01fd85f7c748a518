#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// d_bias[n] += sum over rows of dy[row, n]. dy is (N, C), f32 or bf16; d_bias (C) f32. Rows are
// summed within blocks whose size depends on N alone, in a fixed order, then blocks in order.
void bias_gradient(StreamView stream, const Tensor& dy, const Tensor& d_bias);
[[nodiscard]] std::size_t bias_gradient_workspace_bytes(std::int64_t N,
                                                        std::int64_t C,
                                                        const Workers& workers);

}  // namespace slackline
