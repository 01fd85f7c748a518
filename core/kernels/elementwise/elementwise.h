#pragma once

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Copies with conversion between f32 and bf16 (round to nearest even); equal types copy. Between
// equal types either tensor may be the host's on a stream of the CUDA device: `from` has been read
// when the call returns, `to` is written once the stream is synchronized.
void cast(StreamView stream, const Tensor& from, const Tensor& to);

void fill_zero(StreamView stream, const Tensor& tensor);

// out = a + b, element by element in f32. out may be a or b.
void add(StreamView stream, const Tensor& a, const Tensor& b, const Tensor& out);

// out = factor * x, f32. out may be x.
void scale(StreamView stream, const Tensor& x, float factor, const Tensor& out);

}  // namespace slackline
