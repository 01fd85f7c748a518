#pragma once

#include "core/comm/engine/ordered_sum.h"
#include "core/tensor/stream.h"

namespace slackline::cuda {

inline constexpr int kMostRanksOfSum = 256;

// OrderedSum::run() of memory of the CUDA device, with the same bits.
void ordered_sum(StreamView stream, const OrderedSum& sum);

}  // namespace slackline::cuda
