#pragma once

#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/plan/summed_part.h"

namespace slackline {

enum class Packing { pack, unpack };

// Copies parts of a row of f32 to where they stand one behind the other, to travel plain beside
// coded sums, or back.
void copy_packed(StreamView stream,
                 const std::vector<SummedPart>& parts,
                 const Tensor& row,
                 const Buffer& packed,
                 Packing packing);

}  // namespace slackline
