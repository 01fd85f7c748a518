#pragma once

#include <span>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// A matrix M (n, m) beside two factors of rank r, all f32 and contiguous: what a low-rank codec
// computes, for many matrices in one call. With `added`, M is matrix + added and lives in `added`
// from low_rank_left() on; else M is `matrix`.
struct LowRankProduct {
  Tensor matrix{};  // (n, m)
  Tensor added{};   // (n, m) or empty
  Tensor left{};    // (n, r)
  Tensor right{};   // (r, m)
};

// added += matrix, where given; left = M right^T. Sums run in fp32 over fixed blocks, so results
// depend on shapes alone, never on threads or on the other matrices of the call.
void low_rank_left(StreamView stream, std::span<const LowRankProduct> products);

// right = left^T M.
void low_rank_right(StreamView stream, std::span<const LowRankProduct> products);

enum class LowRankOutput {
  none,   // `matrix` is not touched and may be empty
  write,  // matrix = left right
  add,    // matrix += left right
};

// Writes left right to `matrix` as told and takes `share` times it off `added`, where given.
void low_rank_multiply(StreamView stream,
                       std::span<const LowRankProduct> products,
                       LowRankOutput output,
                       float share);

// Scratch of any of the calls above with these products; their tensors need shapes only.
[[nodiscard]] std::size_t low_rank_workspace_bytes(std::span<const LowRankProduct> products,
                                                   const Workers& workers);

}  // namespace slackline
