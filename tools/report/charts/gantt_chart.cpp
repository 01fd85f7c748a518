#include "tools/report/charts/gantt_chart.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 104;  // names of lanes
constexpr double kRight = 14;
constexpr double kTop = 8;
constexpr double kLane = 14;
constexpr double kBar = 12;
constexpr double kRankGap = 7;
constexpr double kLetter = 6;  // width, about

constexpr std::array<const char*, 5> kLaneNames = {
    "compute", "activations", "gradients", "data, table", "waiting"};

struct KindName {
  const char* style;
  const char* name;
};

constexpr std::array<KindName, 8> kKinds = {{{"forward", "forward"},
                                             {"backward", "backward"},
                                             {"weight", "weight gradients"},
                                             {"update", "norm and optimizer"},
                                             {"activations", "activations sent"},
                                             {"gradients", "gradients sent to the stage before"},
                                             {"data", "data axis and tied table"},
                                             {"waiting", "waiting"}}};

const KindName& name_of(BarKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::vector<RankBar> named_bars(const StepBars& step, const std::vector<std::string>& names) {
  std::vector<RankBar> bars;
  std::ranges::copy_if(step.bars, std::back_inserter(bars), [&](const RankBar& bar) {
    const auto rank = static_cast<std::size_t>(bar.rank);
    return bar.rank >= 0 && rank < names.size() && !names[rank].empty();
  });
  return bars;
}

Html drawn(const RankBar& bar, double top, const Scale& x) {
  constexpr double kLeast = 0.6;  // pixels that can still be seen
  const double left = x(bar.start);
  const double width = std::max(x(bar.end) - left, kLeast);
  const Attributes place = {
      {"x", pixels(left)}, {"y", pixels(top)}, {"width", pixels(width)}, {"height", pixels(kBar)}};
  Attributes attributes = {{"class",
                            fmt::format("bar {}{}{}",
                                        name_of(bar.kind).style,
                                        bar.critical ? " critical" : "",
                                        bar.compressed ? " compressed" : "")}};
  attributes.insert(attributes.end(), place.begin(), place.end());
  Html all = element("rect", attributes, text_element("title", bar.title));
  if (bar.compressed) {
    Attributes hatch = {{"class", "hatch"}};
    hatch.insert(hatch.end(), place.begin(), place.end());
    all += element("rect", hatch);
  }
  if (kLetter * static_cast<double>(bar.label.size()) + 2 <= width) {
    all += svg_text(left + 2, top + kBar - 3, {{"class", "bar-label"}}, bar.label);
  }
  return all;
}

Html time_axis(double length, const Scale& x, double bottom) {
  constexpr int kTicks = 6;
  const TimeUnit unit = time_unit(length);
  Html all;
  for (const double tick : round_ticks(0.0, length * unit.per_second, kTicks)) {
    const double seconds = tick / unit.per_second;
    if (seconds > length) {
      break;
    }
    all += grid_line(x(seconds), kTop, x(seconds), bottom);
    all += svg_text(x(seconds),
                    bottom + 13,
                    {{"class", "x-tick"}, {"text-anchor", "middle"}},
                    fmt::format("{:.10g}", tick));
  }
  all += svg_text((kLeft + kWidth) / 2,
                  bottom + 27,
                  {{"class", "label"}, {"text-anchor", "middle"}},
                  fmt::format("{} from the start of the step", unit.name));
  return all;
}

std::vector<LegendEntry> entries_of(const std::vector<RankBar>& bars) {
  std::array<bool, kKinds.size()> used{};
  bool critical = false;
  bool compressed = false;
  for (const RankBar& bar : bars) {
    used[static_cast<std::size_t>(bar.kind)] = true;
    critical = critical || bar.critical;
    compressed = compressed || bar.compressed;
  }
  std::vector<LegendEntry> entries;
  for (std::size_t kind = 0; kind < used.size(); ++kind) {
    if (used[kind]) {
      entries.push_back(
          {.style = fmt::format("bar {}", kKinds[kind].style), .name = kKinds[kind].name});
    }
  }
  if (critical) {
    entries.push_back({.style = "bar key-critical", .name = "outlined: on the critical path"});
  }
  if (compressed) {
    entries.push_back({.style = "hatch", .name = "hatched: compressed"});
  }
  return entries;
}

}  // namespace

Html gantt_chart(const StepBars& step,
                 const std::vector<std::string>& names,
                 const std::string& kind,
                 std::string_view caption) {
  const std::vector<RankBar> bars = named_bars(step, names);
  std::map<std::pair<int, LaneKind>, double> tops;
  for (const RankBar& bar : bars) {
    tops[{bar.rank, LaneKind::compute}];
    tops[{bar.rank, bar.lane}];
  }
  Html lanes;
  double bottom = kTop;
  for (auto& [place, top] : tops) {
    const auto& [rank, lane] = place;
    const bool first = lane == LaneKind::compute;
    top = bottom + (first && !lanes.empty() ? kRankGap : 0.0);
    bottom = top + kLane;
    lanes += svg_text(
        kLeft - 6,
        top + kBar - 2,
        {{"class", "lane"}, {"text-anchor", "end"}},
        first ? names[static_cast<std::size_t>(rank)] : kLaneNames[static_cast<std::size_t>(lane)]);
  }
  const Scale x{.low = 0.0, .high = step.seconds, .from = kLeft, .to = kWidth - kRight};
  Html content = time_axis(step.seconds, x, bottom);
  content += lanes;
  // Outlines of critical bars lie above their neighbours.
  for (const bool critical : {false, true}) {
    for (const RankBar& bar : bars) {
      if (bar.critical == critical) {
        content += drawn(bar, tops.at({bar.rank, bar.lane}), x);
      }
    }
  }
  constexpr double kAxis = 34;
  return figure(fmt::format("gantt {}", kind),
                caption,
                svg(kWidth, bottom + kAxis, caption, content),
                entries_of(bars));
}

Html chart_patterns() {
  return Html::literal(
      R"html(<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>)html"
      R"html(<pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" )html"
      R"html(patternTransform="rotate(45)"><rect class="hatch-line" width="1.6" height="4"></rect>)html"
      R"html(</pattern></defs></svg>)html");
}

}  // namespace slackline::report
