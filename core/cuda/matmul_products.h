#pragma once

#include <cstddef>

#include "core/kernels/matmul.h"

// Who multiplies for matmul() on the CUDA device: cuBLASLt (matmul_cublas.cpp).
namespace slackline::cuda {

// Scratch of either call, on the stream's workspace.
inline constexpr std::size_t kProductWorkspace = std::size_t{32} << 20U;

// The whole call with its epilogue in one kernel. False, and nothing is queued, where the library
// has none for these shapes and types.
[[nodiscard]] bool fused_product(StreamView stream, const MatmulArgs& args);

// C = op(A) op(B) [+ C], without the epilogue.
void plain_product(StreamView stream, const MatmulArgs& args);

}  // namespace slackline::cuda
