#pragma once

#include <string>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

// Vertical bars, each the sum of its parts.
struct StackedBars {
  struct Bar {
    std::string name{};
    std::vector<double> values{};  // as parts; none below 0
  };

  std::string kind{};  // class of the figure
  std::string caption{};
  std::string x_label{};
  std::string y_label{};
  std::vector<std::string> parts{};  // from the bottom up; as many as there are colours at most
  std::vector<Bar> bars{};
};

// Parts that are 0 everywhere are left out.
[[nodiscard]] Html stacked_bars(const StackedBars& chart);

}  // namespace slackline::report
