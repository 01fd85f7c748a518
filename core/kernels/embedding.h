#pragma once

#include "core/stream.h"
#include "core/tensor.h"

namespace slackline {

// y[b, t] = token_table[tokens[b, t]] + position_table[first_position + t].
// tokens is (B, T) i32; tables are (V, C) and (P, C), y is (B, T, C), one type, f32 or bf16.
// REQUIRES: every token is in [0, V): checked when data is opened, not here.
struct EmbeddingForward {
  Tensor tokens{};
  Tensor token_table{};
  Tensor position_table{};
  Tensor y{};
  std::int64_t first_position = 0;
};

// Adds to the f32 gradients. A token's rows are summed in ascending (b, t) order; a position's in
// ascending b. Deterministic for any number of threads.
struct EmbeddingBackward {
  Tensor tokens{};
  Tensor dy{};
  Tensor d_token_table{};
  Tensor d_position_table{};
};

void embedding_forward(StreamView stream, const EmbeddingForward& args);
void embedding_backward(StreamView stream, const EmbeddingBackward& args);

}  // namespace slackline
