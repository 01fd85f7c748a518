#pragma once

#include <span>

#include "compress/kernels/low_rank/orthogonalization.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// What has to be left of a column's length for it not to depend on those before it: more than the
// rounding of what the column was made by. What is left is taken out of no more columns in the
// textbook's method, and errors of 6e-8 of the length count there.
[[nodiscard]] constexpr float least_share_left(Orthogonalization method) {
  return method == Orthogonalization::blocked ? 1e-6F : 1e-5F;
}

// Replaces the columns of each matrix (n, r), f32, by an orthonormal basis of what they span, in
// order: column k is a combination of columns 0 .. k. A column that depends on the ones before it
// (see least_share_left) becomes zero, so that the product of the result with its transpose is a
// projection whatever the rank. Scale does not matter: matrices are scaled by powers of two
// first. A matrix with Inf or NaN becomes NaN.
//
// Blocked: columns are orthogonal to rounding, however close to dependent they were. Gram-Schmidt:
// to rounding times the condition number. REQUIRES: r <= n.
void orthonormalize(StreamView stream, std::span<const Tensor> matrices, Orthogonalization method);

// Scratch of the call; the matrices need shapes only.
[[nodiscard]] std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices,
                                                         const Workers& workers);

}  // namespace slackline
