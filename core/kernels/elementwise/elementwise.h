#pragma once

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Copies with conversion between f32 and bf16 (round to nearest even); equal types copy. Between
// equal types either tensor may be the host's on a stream of the CUDA device: `from` has been read
// when the call returns, `to` is written once the stream is synchronized.
void cast(StreamView stream, const Tensor& from, const Tensor& to);

void fill_zero(StreamView stream, const Tensor& tensor);

// to += from, element by element in f32. `from` is f32 or bf16.
void accumulate(StreamView stream, const Tensor& from, const Tensor& to);

// to -= from, likewise.
void subtract(StreamView stream, const Tensor& from, const Tensor& to);

// out = factor * x, f32. out may be x.
void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out);

// values -= bf16(values): what rounding to bf16 leaves out, exact in f32. Inf becomes NaN.
void keep_bf16_error(StreamView stream, const Tensor& values);

}  // namespace slackline
