#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <string>

namespace slackline::testing {

// |actual - expected| <= absolute + relative * |expected|.
struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

// Empty when every element is close, else a sentence about the worst one, for
//   REQUIRE(worst_mismatch(actual, expected, tolerance) == "");
// A NaN is never close, an infinity only to itself.
[[nodiscard]] inline std::string worst_mismatch(std::span<const double> actual,
                                                std::span<const double> expected,
                                                const Tolerance& tolerance) {
  if (actual.size() != expected.size()) {
    return std::to_string(actual.size()) + " elements, expected " + std::to_string(expected.size());
  }
  double worst = 1.0;
  std::size_t num_far = 0;
  std::ostringstream report;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) {
      continue;
    }
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const double excess = std::abs(actual[i] - expected[i]) / allowed;
    if (excess <= 1.0) {
      continue;
    }
    ++num_far;
    if (num_far == 1 || std::isnan(excess) || excess > worst) {
      worst = std::isnan(excess) ? INFINITY : excess;
      report.str("");
      report.precision(9);
      report << "element " << i << " is " << actual[i] << ", expected " << expected[i] << ": "
             << excess << " x the tolerance";
    }
  }
  return num_far == 0 ? ""
                      : report.str() + "; " + std::to_string(num_far) + " of " +
                            std::to_string(actual.size()) + " elements are off";
}

}  // namespace slackline::testing
