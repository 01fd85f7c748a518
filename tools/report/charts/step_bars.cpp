#include "tools/report/charts/step_bars.h"

#include <array>
#include <map>
#include <utility>

namespace slackline::report {

namespace {

constexpr std::array<const char*, 5> kLaneNames = {
    "compute", "activations", "gradients", "data, table", "waiting"};

}  // namespace

GanttChart in_lanes(const StepBars& step, const std::vector<std::string>& names) {
  const auto is_shown = [&](const RankBar& row) {
    return row.rank >= 0 && static_cast<std::size_t>(row.rank) < names.size() &&
           !names[static_cast<std::size_t>(row.rank)].empty();
  };
  std::map<std::pair<int, LaneKind>, std::size_t> lanes;
  for (const RankBar& row : step.bars) {
    if (is_shown(row)) {
      lanes[{row.rank, LaneKind::compute}];
      lanes[{row.rank, row.lane}];
    }
  }
  GanttChart chart{.seconds = step.seconds};
  for (auto& [place, number] : lanes) {
    const auto& [rank, kind] = place;
    const bool first = kind == LaneKind::compute;
    number = chart.lanes.size();
    chart.lanes.push_back({.name = first ? names[static_cast<std::size_t>(rank)]
                                         : kLaneNames[static_cast<std::size_t>(kind)],
                           .begins_rank = first});
  }
  chart.bars.reserve(step.bars.size());
  for (const RankBar& row : step.bars) {
    if (is_shown(row)) {
      chart.bars.push_back(row.bar);
      chart.bars.back().lane = lanes.at({row.rank, row.lane});
    }
  }
  return chart;
}

}  // namespace slackline::report
