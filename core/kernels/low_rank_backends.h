#pragma once

#include <cstdint>
#include <vector>

#include "core/kernels/low_rank.h"

namespace slackline::cpu {

// Factors of at most this rank go to the kernels below, which wait for memory up to about here.
inline constexpr std::int64_t kThinRank = 16;

// Arguments are checked and have elements.
void thin_low_rank_left(StreamView stream, const std::vector<LowRankProduct>& products);
void thin_low_rank_right(StreamView stream, const std::vector<LowRankProduct>& products);
void thin_low_rank_multiply(StreamView stream,
                            const std::vector<LowRankProduct>& products,
                            LowRankOutput output,
                            float share);

[[nodiscard]] std::size_t thin_low_rank_workspace_bytes(
    const std::vector<LowRankProduct>& products);

}  // namespace slackline::cpu
