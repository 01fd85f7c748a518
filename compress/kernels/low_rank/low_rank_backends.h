#pragma once

#include <vector>

#include "compress/kernels/low_rank/low_rank.h"
#include "core/kernels/dispatch.h"

// Factors of at most kThinRank go to kernels of their own, which wait for memory up to about there;
// wider ones are products like others. Arguments are checked and have elements.
namespace slackline {

inline constexpr std::int64_t kThinRank = 16;

using LowRankProducts = std::vector<LowRankProduct>;

SL_BACKENDS(void thin_low_rank_left(StreamView stream, const LowRankProducts& products))
SL_BACKENDS(void thin_low_rank_right(StreamView stream, const LowRankProducts& products))
SL_BACKENDS(void thin_low_rank_multiply(
    StreamView stream, const LowRankProducts& products, LowRankOutput output, float share))
SL_BACKENDS(std::size_t thin_low_rank_workspace_bytes(const LowRankProducts& products))

}  // namespace slackline
