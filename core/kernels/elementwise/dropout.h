#pragma once

#include <cstdint>

#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// out = residual + dropout(x), where dropout(x) = x * keep / (1 - probability). With an empty
// residual, out = dropout(x). x is (n, ...): rows first_row .. first_row + n - 1 of samples of
// rows_per_sample rows each, so it may begin and end inside a sample. A sample's elements are
// numbered row-major from 0 for the key's element: the masks of a row do not depend on which other
// rows are there. Any of x, residual and out may be the same memory. f32 or bf16, computed in
// float; x may also be f32 where the others are bf16. The same call on dy, without a residual, is
// the backward pass: nothing but the key is kept.
struct DropoutAdd {
  Tensor x{};
  Tensor residual{};
  Tensor out{};
  DropoutKey key{};
  std::int64_t first_row = 0;
  std::int64_t rows_per_sample = 1;  // 1: x is (B, ...), whole samples
};

void dropout_add(StreamView stream, const DropoutAdd& args);

// Throws where the operands do not fit, for ops that do the same among other things.
void check_dropout_add(const DropoutAdd& args);

}  // namespace slackline
