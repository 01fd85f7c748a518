#pragma once

#include <cstddef>

#include "core/kernels/matmul/matmul.h"

// Who multiplies for matmul() on the CUDA device: cuBLASLt (matmul_cublas.cpp).
namespace slackline::cuda {

// An algorithm of the library may use kProductWorkspace bytes. A call takes a few more of the
// stream's workspace: the library refuses memory that does not begin at a multiple of 256 bytes.
inline constexpr std::size_t kProductWorkspace = std::size_t{32} << 20U;
inline constexpr std::size_t kProductWorkspaceAlignment = 256;
inline constexpr std::size_t kProductScratch = kProductWorkspace + kProductWorkspaceAlignment;

// The whole call with its epilogue in one kernel. False, and nothing is queued, where the library
// has none for these shapes and types.
[[nodiscard]] bool fused_product(StreamView stream, const MatmulArgs& args);

// C = op(A) B [+ C], and the sums of B's columns into `sums` (N) f32, which is written: in one
// kernel. False, and nothing is queued, where the library has none or it is no faster than both
// apart. Takes as much scratch as `sums` has besides. REQUIRES: no epilogue but bias_gradient,
// which is not touched.
[[nodiscard]] bool product_with_column_sums(StreamView stream,
                                            const MatmulArgs& args,
                                            const Tensor& sums);

// C = op(A) op(B) [+ C], without the epilogue.
void plain_product(StreamView stream, const MatmulArgs& args);

}  // namespace slackline::cuda
