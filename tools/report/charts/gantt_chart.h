#pragma once

#include <string>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

struct GanttLane {
  std::string name{};
  bool begins_rank = false;  // room above it
};

enum class BarKind {
  forward,
  backward,
  weight,  // the part of a backward pass that makes weight gradients
  update,  // gradient norm and optimizer
  activations,
  gradients,  // between stages
  data,       // sums of gradients, gathered parameters, the tied table
  waiting
};

struct GanttBar {
  std::size_t lane = 0;
  double start = 0.0;  // seconds from the start of the step
  double end = 0.0;
  BarKind kind{};
  std::string label{};  // drawn where it fits
  std::string title{};  // when pointed at
  bool critical = false;
  bool compressed = false;
};

// What happens when, a lane below the other. Critical bars have an outline, compressed ones are
// hatched (with the pattern of chart_patterns, which must stand once on the page).
struct GanttChart {
  std::string kind{};  // class of the figure
  std::string caption{};
  std::vector<GanttLane> lanes{};
  std::vector<GanttBar> bars{};
  double seconds = 0.0;  // length of the axis
};

// REQUIRES: seconds > 0 and finite.
[[nodiscard]] Html gantt_chart(const GanttChart& chart);

[[nodiscard]] Html chart_patterns();

}  // namespace slackline::report
