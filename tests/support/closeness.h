#pragma once

#include <algorithm>
#include <cmath>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

namespace slackline::testing {

// |actual - expected| <= absolute + relative * |expected|.
struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

// Empty, or a sentence about elements that are not what they should be.
struct Mismatch {
  std::string report;

  bool operator==(std::string_view text) const { return report == text; }

  friend std::ostream& operator<<(std::ostream& out, const Mismatch& mismatch) {
    return out << mismatch.report;
  }
};

// Equal to "" when every element is close, else about the worst one, for
//   REQUIRE(worst_mismatch(actual, expected, tolerance) == "");
// A NaN is never close, an infinity only to itself.
[[nodiscard]] inline Mismatch worst_mismatch(std::span<const double> actual,
                                             std::span<const double> expected,
                                             const Tolerance& tolerance) {
  if (actual.size() != expected.size()) {
    return {std::to_string(actual.size()) + " elements, expected " +
            std::to_string(expected.size())};
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
  if (num_far == 0) {
    return {};
  }
  report << "; " << num_far << " of " << actual.size() << " elements are off";
  return {report.str()};
}

}  // namespace slackline::testing
