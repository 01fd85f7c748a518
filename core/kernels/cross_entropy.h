#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/matmul.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace slackline {

// The output head and the loss in one: logits = x table^T, loss = -log softmax(logits)[target].
// Works through chunks of tokens, so full logits never exist. The chunk's size depends on the
// vocabulary and the token count alone (cross_entropy_chunk_tokens).
//
// x is (N, C), table (V, C), both f32 or bf16; targets (N) i32; losses (N) f32 out.
// With d_x given, gradients of gradient_scale * sum(losses) are made as well: d_x (N, C) of x's
// type is written; d_table (V, C) f32 is written or added to (accumulate_table). The logit
// gradients round to x's type before the products.
struct CrossEntropyArgs {
  Tensor x{};
  Tensor table{};
  Tensor targets{};
  Tensor losses{};
  Tensor d_x{};      // empty: loss only
  Tensor d_table{};  // REQUIRES: given with d_x
  Accumulate accumulate_table = Accumulate::yes;
  float gradient_scale = 1.0F;  // 1 / tokens of the global batch (CONTRACTS rule 5)
};

void cross_entropy(StreamView stream, const CrossEntropyArgs& args);

[[nodiscard]] std::int64_t cross_entropy_chunk_tokens(std::int64_t N, std::int64_t V);

struct CrossEntropySize {
  std::int64_t N = 0, C = 0, V = 0;
  DType dtype = DType::f32;
};

[[nodiscard]] std::size_t cross_entropy_workspace_bytes(const CrossEntropySize& size,
                                                        int num_threads);

}  // namespace slackline
