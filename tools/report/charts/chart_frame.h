#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

// What charts share: a scale from values to pixels, ticks at round numbers, axes, a legend. Charts
// are inline SVG whose width follows the page; colours are classes of the style sheet, so that they
// follow a dark screen and paper.

// Values from low to high over pixels from..to; others stand at the nearer end.
struct Scale {
  double low = 0.0;
  double high = 1.0;
  double from = 0.0;
  double to = 1.0;

  [[nodiscard]] double operator()(double value) const {
    return from + (to - from) * ((std::clamp(value, low, high) - low) / (high - low));
  }
};

// Round numbers about `about` in number whose ends enclose [low, high], at least two. A range
// without extent is widened, one beyond 1e300 cut off there. REQUIRES: both are finite.
[[nodiscard]] std::vector<double> round_ticks(double low, double high, int about);

// A number of pixels.
[[nodiscard]] std::string pixels(double value);

struct Frame {
  double width = 420;
  double height = 240;
  double left = 54;
  double right = 24;
  double top = 18;
  double bottom = 38;
  std::string x_label{};
  std::string y_label{};
  std::vector<double> x_ticks{};  // none: the chart labels its bars itself
  std::vector<double> y_ticks{};

  // The first and last tick are the ends. REQUIRES: at least two.
  [[nodiscard]] Scale x() const;
  [[nodiscard]] Scale y() const;
};

// Grid, ticks and labels.
[[nodiscard]] Html axes(const Frame& frame);

[[nodiscard]] Html grid_line(double x1, double y1, double x2, double y2);

[[nodiscard]] Html svg_text(double x,
                            double y,
                            const Attributes& attributes,
                            std::string_view text);

// The chart with what it shows, in words for those who cannot see it.
[[nodiscard]] Html svg(double width, double height, std::string_view title, const Html& content);

struct LegendEntry {
  std::string style{};  // class of its colour
  std::string name{};
};

// A chart with its caption and legend. `kind` is its class.
[[nodiscard]] Html figure(const std::string& kind,
                          std::string_view caption,
                          const Html& chart,
                          const std::vector<LegendEntry>& entries = {});

}  // namespace slackline::report
