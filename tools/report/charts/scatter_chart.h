#pragma once

#include <string>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

struct ScatterPoint {
  double x = 0.0;
  double y = 0.0;
  std::string label{};  // beside it: short
  std::string title{};  // when pointed at
};

struct ScatterChart {
  std::string kind{};  // class of the figure
  std::string caption{};
  std::string x_label{};
  std::string y_label{};
  std::vector<ScatterPoint> points{};  // those that are not finite are left out
};

[[nodiscard]] Html scatter_chart(const ScatterChart& chart);

}  // namespace slackline::report
