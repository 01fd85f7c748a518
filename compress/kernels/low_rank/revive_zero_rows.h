#pragma once

#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// Rows of `matrix` (r, m), f32, of zeros alone become standard normal numbers: row i, column c the
// first of normal_pair(key, i * m + c), rounded. Others stay.
void revive_zero_rows(StreamView stream, const Tensor& matrix, PhiloxKey key);

}  // namespace slackline
