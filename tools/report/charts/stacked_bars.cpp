#include "tools/report/charts/stacked_bars.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

namespace {

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::string part_class(std::size_t part) {
  return fmt::format("part c{}", part);
}

// About six names under the bars, no more than fit.
Html names(const StackedBars& chart, const Frame& frame, double pitch) {
  constexpr std::size_t kMost = 6;
  const std::size_t every = (chart.bars.size() + kMost - 1) / kMost;
  Html all;
  for (std::size_t i = 0; i < chart.bars.size(); i += every) {
    all += svg_text(frame.left + (static_cast<double>(i) + 0.5) * pitch,
                    frame.height - frame.bottom + 15,
                    {{"class", "x-tick"}, {"text-anchor", "middle"}},
                    chart.bars[i].name);
  }
  return all;
}

Html bar_of(const StackedBars& chart, std::size_t number, const Frame& frame, double pitch) {
  const StackedBars::Bar& bar = chart.bars[number];
  const Scale y = frame.y();
  Html parts;
  double below = 0.0;
  for (std::size_t part = 0; part < chart.parts.size(); ++part) {
    const double value = bar.values[part];
    if (value > 0.0) {
      const std::string title = fmt::format(
          "{}: {} {} {}", bar.name, chart.parts[part], number_text(value), chart.y_label);
      parts += element("rect",
                       {{"class", part_class(part)},
                        {"x", pixels(frame.left + (static_cast<double>(number) + 0.1) * pitch)},
                        {"y", pixels(y(below + value))},
                        {"width", pixels(0.8 * pitch)},
                        {"height", pixels(y(below) - y(below + value))}},
                       text_element("title", title));
    }
    below += value;
  }
  return element("g", {{"class", "bar"}}, parts);
}

}  // namespace

Html stacked_bars(const StackedBars& chart) {
  if (chart.bars.empty()) {
    return notice(fmt::format("{}: no values", chart.caption));
  }
  double highest = 0.0;
  std::vector<double> totals(chart.parts.size(), 0.0);
  for (const StackedBars::Bar& bar : chart.bars) {
    highest = std::max(highest, sum(bar.values));
    for (std::size_t part = 0; part < totals.size(); ++part) {
      totals[part] += bar.values[part];
    }
  }
  constexpr int kTicks = 5;
  const Frame frame{.x_label = chart.x_label,
                    .y_label = chart.y_label,
                    .y_ticks = round_ticks(0.0, highest, kTicks)};
  const double pitch =
      (frame.width - frame.left - frame.right) / static_cast<double>(chart.bars.size());
  Html content = axes(frame);
  content += names(chart, frame, pitch);
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    content += bar_of(chart, i, frame, pitch);
  }
  std::vector<LegendEntry> entries;
  for (std::size_t part = 0; part < totals.size(); ++part) {
    if (totals[part] > 0.0) {
      entries.push_back({.style = part_class(part), .name = chart.parts[part]});
    }
  }
  return figure(
      chart.kind, chart.caption, svg(frame.width, frame.height, chart.caption, content), entries);
}

}  // namespace slackline::report
