#pragma once

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// to += from, element by element in f32. `from` is f32 or bf16.
void accumulate(StreamView stream, const Tensor& from, const Tensor& to);

// to -= from, likewise.
void subtract(StreamView stream, const Tensor& from, const Tensor& to);

// values -= bf16(values): what rounding to bf16 leaves out, exact in f32. Inf becomes NaN.
void keep_bf16_error(StreamView stream, const Tensor& values);

}  // namespace slackline
