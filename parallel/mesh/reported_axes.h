#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace slackline {

// The axes whose traffic is reported, in this order.
inline constexpr std::array<std::string_view, 5> kReportedAxes = {
    "tensor", "pipeline", "data", "embedding", "outer"};

// Their places in that order. The last one is in a record only where there are outer rounds.
inline constexpr std::size_t kTensorAxis = 0;
inline constexpr std::size_t kPipelineAxis = 1;
inline constexpr std::size_t kDataAxis = 2;
inline constexpr std::size_t kEmbeddingAxis = 3;
inline constexpr std::size_t kOuterAxis = 4;

}  // namespace slackline
