#include "tools/report/charts/scatter_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"

namespace slackline::report {

namespace {

bool is_drawn(const ScatterPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

std::vector<double> ticks_over(const std::vector<double>& values) {
  constexpr int kTicks = 4;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return round_ticks(*low, *high, kTicks);
}

}  // namespace

Html scatter_chart(const ScatterChart& chart) {
  std::vector<double> x;
  std::vector<double> y;
  for (const ScatterPoint& point : chart.points) {
    if (is_drawn(point)) {
      x.push_back(point.x);
      y.push_back(point.y);
    }
  }
  if (x.empty()) {
    return notice(fmt::format("{}: no values", chart.caption));
  }
  const Frame frame{.x_label = chart.x_label,
                    .y_label = chart.y_label,
                    .x_ticks = ticks_over(x),
                    .y_ticks = ticks_over(y)};
  Html content = axes(frame);
  for (const ScatterPoint& point : chart.points) {
    if (!is_drawn(point)) {
      continue;
    }
    const double left = frame.x()(point.x);
    const double top = frame.y()(point.y);
    content +=
        element("circle",
                {{"class", "point c0"}, {"cx", pixels(left)}, {"cy", pixels(top)}, {"r", "4"}},
                text_element("title", point.title));
    // Towards the middle, so that it stays inside.
    const bool right_half = left > frame.width / 2;
    content += svg_text(right_half ? left - 6 : left + 6,
                        top - 5,
                        {{"class", "point-label"}, {"text-anchor", right_half ? "end" : "start"}},
                        point.label);
  }
  return figure(chart.kind, chart.caption, svg(frame.width, frame.height, chart.caption, content));
}

}  // namespace slackline::report
