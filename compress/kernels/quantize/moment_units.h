#pragma once

#include "compress/kernels/quantize/quantize.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The unit of each element of a gradient: d = sqrt(v) + floor, v its second moment, which AdamW
// divides by. What is lost in these units is lost of the update. The floor is for elements that
// had no gradient yet.
struct MomentUnits {
  Tensor moments{};    // f32 (rows, columns), finite, none below 0
  float floor = 1.0F;  // above 0
};

// Gives the units of these moments; of none but zeros all are 1. The floor is 2^-10 of the root of
// the moments' root mean square, rounded to bf16. Waits for the stream, on whose workspace it works
// (sums_of_squares_workspace_bytes()).
[[nodiscard]] MomentUnits moment_units(StreamView stream, const Tensor& moments);

// to = x / d, in f32 (rows, columns). to may be x.
void divide_by_units(StreamView stream,
                     const Tensor& x,
                     const MomentUnits& units,
                     const Tensor& to);

// out = y d, out += y d or out -= y d, rounded once; f32 (rows, columns).
void multiply_by_units(
    StreamView stream, const Tensor& y, const MomentUnits& units, const Tensor& out, Update update);

}  // namespace slackline
