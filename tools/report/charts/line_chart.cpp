#include "tools/report/charts/line_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

namespace {

constexpr std::size_t kMostMarks = 60;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string colour_class(const char* what, int colour) {
  return fmt::format("{} c{}", what, colour % kNumColours);
}

Html polyline(const std::vector<Point>& points, const Frame& frame, int colour) {
  const Scale x = frame.x();
  const Scale y = frame.y();
  std::string corners;
  for (const Point& point : points) {
    corners += fmt::format("{}{:.2f},{:.2f}", corners.empty() ? "" : " ", x(point.x), y(point.y));
  }
  return element("polyline", {{"class", colour_class("line", colour)}, {"points", corners}});
}

Html marks(const Series& series, const std::vector<Point>& points, const Frame& frame) {
  Html all;
  for (const Point& point : points) {
    const std::string title =
        fmt::format("{}: {} at {}", series.name, number_text(point.y), number_text(point.x));
    all += element("circle",
                   {{"class", colour_class("mark", series.colour)},
                    {"cx", pixels(frame.x()(point.x))},
                    {"cy", pixels(frame.y()(point.y))},
                    {"r", "2.2"}},
                   text_element("title", title));
  }
  return all;
}

Html drawn(const Series& series, const Frame& frame) {
  Html all;
  const std::vector<Point> points = thinned(series.points, kMostPoints);
  std::vector<Point> run;
  const auto end_run = [&] {
    if (!run.empty()) {
      all += polyline(run, frame, series.colour);
      if (points.size() <= kMostMarks || run.size() == 1) {  // a line of one point shows nothing
        all += marks(series, run, frame);
      }
    }
    run.clear();
  };
  for (const Point& point : points) {
    if (std::isfinite(point.y)) {
      run.push_back(point);
    } else {
      end_run();
    }
  }
  end_run();
  return all;
}

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most) {
  if (points.size() <= most) {
    return points;
  }
  const std::size_t parts = most / 3;
  std::vector<Point> kept;
  kept.reserve(3 * parts);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t end = (part + 1) * points.size() / parts;
    std::size_t gap = end;
    std::size_t low = end;
    std::size_t high = end;
    for (std::size_t i = part * points.size() / parts; i < end; ++i) {
      if (!std::isfinite(points[i].y)) {
        gap = std::min(gap, i);
        continue;
      }
      low = low == end || points[i].y < points[low].y ? i : low;
      high = high == end || points[i].y > points[high].y ? i : high;
    }
    for (const std::size_t i : std::set{gap, low, high}) {
      if (i < end) {
        kept.push_back(points[i]);
      }
    }
  }
  return kept;
}

Html line_chart(const LineChart& chart) {
  Range x;
  Range y;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (std::isfinite(point.y)) {
        x.include(point.x);
        y.include(point.y);
      }
    }
  }
  if (x.low > x.high) {
    return notice(fmt::format("{}: no values", chart.caption));
  }
  constexpr int kTicks = 5;
  const Frame frame{.x_label = "step",
                    .y_label = chart.y_label,
                    .x_ticks = round_ticks(x.low, x.high, kTicks),
                    .y_ticks = round_ticks(y.low, y.high, kTicks)};
  Html content = axes(frame);
  std::vector<LegendEntry> entries;
  entries.reserve(chart.series.size());
  for (const Series& series : chart.series) {
    content += element("g", {{"class", "series"}}, drawn(series, frame));
    entries.push_back({.style = colour_class("mark", series.colour), .name = series.name});
  }
  return figure(
      chart.kind, chart.caption, svg(frame.width, frame.height, chart.caption, content), entries);
}

}  // namespace slackline::report
