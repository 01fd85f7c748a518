#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

struct Point {
  double x = 0.0;
  double y = 0.0;  // not finite: a gap in its line
};

struct Series {
  std::string name{};
  int colour = 0;  // of kNumColours
  std::vector<Point> points{};
};

inline constexpr int kNumColours = 8;

// A point for each of the items at its `step`. `value` is what it stands at: a member, or a
// function of the item.
template <typename Items, typename Value>
[[nodiscard]] Series series_over_steps(const Items& items,
                                       std::string name,
                                       int colour,
                                       const Value& value) {
  Series series{.name = std::move(name), .colour = colour};
  series.points.reserve(items.size());
  for (const auto& item : items) {
    series.points.push_back({.x = static_cast<double>(item.step), .y = std::invoke(value, item)});
  }
  return series;
}

struct LineChart {
  std::string kind{};  // class of the figure
  std::string caption{};
  std::string y_label{};
  std::vector<Series> series{};
};

// A polyline over steps for every run of finite points, with marks where they are few or a run has
// one alone. A long series keeps the smallest and largest finite point of each of kMostPoints / 3
// parts, and the first that is not finite.
[[nodiscard]] Html line_chart(const LineChart& chart);

inline constexpr std::size_t kMostPoints = 4000;

[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, std::size_t most);

}  // namespace slackline::report
