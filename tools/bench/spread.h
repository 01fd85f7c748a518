#pragma once

#include <algorithm>
#include <vector>

namespace slackline {

// Of repeated measurements of one thing: what to report.
struct Spread {
  double low = 0.0;
  double median = 0.0;
  double high = 0.0;
};

// REQUIRES: there is a value.
[[nodiscard]] inline Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

}  // namespace slackline
