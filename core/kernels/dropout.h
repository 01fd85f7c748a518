#pragma once

#include <cstdint>

#include "core/rng.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace slackline {

// out = residual + dropout(x), where dropout(x) = x * keep / (1 - probability). With an empty
// residual, out = dropout(x). x is (B, ...): the first dimension counts samples, the rest is
// numbered row-major from 0 for the key's element. Any of x, residual and out may be the same
// memory. f32 or bf16, computed in float. The same call on dy, without a residual, is the
// backward pass: nothing but the key is kept.
struct DropoutAdd {
  Tensor x{};
  Tensor residual{};
  Tensor out{};
  DropoutKey key{};
};

void dropout_add(StreamView stream, const DropoutAdd& args);

}  // namespace slackline
