#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace slackline {

// The axes whose traffic is reported, in this order.
inline constexpr std::array<std::string_view, 5> kReportedAxes = {
    "tensor", "pipeline", "data", "embedding", "outer"};

// The one that has a place in a record only where there are outer rounds.
inline constexpr std::size_t kOuterAxis = kReportedAxes.size() - 1;

}  // namespace slackline
