#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// y[b, t] = token_table[tokens[b, t] - first_token] + position_table[first_position + t], where
// the first is zero for a token that the table has no row for: tables spread over ranks hold rows
// first_token .. first_token + V - 1 each. With an empty position table y is the first alone.
// tokens is (B, T) i32; tables are (V, C) and (P, C), y is (B, T, C), one type, f32 or bf16.
// REQUIRES: some table has every token: checked when data is opened, not here.
struct EmbeddingForward {
  Tensor tokens{};
  Tensor token_table{};
  Tensor position_table{};
  Tensor y{};
  std::int64_t first_position = 0;
  std::int64_t first_token = 0;
};

// y[i] = x[i] + position_table[(first_row + i) % T]: what is left to do once lookups without
// positions have been summed over the ranks. x and y are (n, C), rows of a flattened (B, T, C);
// they may be the same memory.
struct PositionAdd {
  Tensor position_table{};
  Tensor x{};
  Tensor y{};
  std::int64_t first_row = 0;
  std::int64_t T = 1;
};

// Adds to the f32 gradients; tokens that the table has no row for add to the position's alone. A
// token's rows are summed in ascending (b, t) order; a position's in ascending b. Deterministic
// for any number of threads. Each table may be empty: its gradient is not made.
struct EmbeddingBackward {
  Tensor tokens{};
  Tensor dy{};
  Tensor d_token_table{};
  Tensor d_position_table{};
  std::int64_t first_token = 0;
};

void embedding_forward(StreamView stream, const EmbeddingForward& args);
void add_positions(StreamView stream, const PositionAdd& args);
void embedding_backward(StreamView stream, const EmbeddingBackward& args);

// Scratch of embedding_backward, for so many tokens and rows of the token table that is here.
[[nodiscard]] std::size_t embedding_workspace_bytes(std::int64_t num_tokens,
                                                    std::int64_t num_rows,
                                                    const Workers& workers);

}  // namespace slackline
