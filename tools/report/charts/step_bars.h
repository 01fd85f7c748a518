#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/predict/timeline/chrome_trace.h"
#include "parallel/predict/timeline/timeline.h"
#include "tools/plan/step_plan.h"

namespace slackline::report {

// The row of a rank that a bar stands in, in this order.
enum class LaneKind { compute, activations, gradients, data, waiting };

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

struct RankBar {
  int rank = 0;
  LaneKind lane{};
  BarKind kind{};
  double start = 0.0;  // seconds from the start of the step
  double end = 0.0;
  std::string label{};  // drawn where it fits
  std::string title{};  // when pointed at
  bool critical = false;
  bool compressed = false;
};

// A step as bars of ranks; those of one timeline have one clock.
struct StepBars {
  std::vector<RankBar> bars{};
  double seconds = 0.0;   // length of the time axis
  std::int64_t step = 0;  // 0: not known
};

// Which nodes of a timeline have no slack: were one later, so would be the step.
[[nodiscard]] std::vector<bool> critical_nodes(const schedule::Timeline& timeline);

// One replica's pipeline ranks, as costs predict them, under the plan in force.
[[nodiscard]] StepBars predicted_bars(const StepPlan& plan);

// The last step of a run's trace. What the predicted timeline has on its critical path is marked
// here too, where `prediction` says that there is one. Without a bar of the step itself (track
// "step") the whole trace counts. Transfers of the tensor axis, which pass inside of ops, are left
// out.
enum class Prediction { none, known };

[[nodiscard]] StepBars measured_bars(const StepPlan& plan,
                                     Prediction prediction,
                                     const std::vector<schedule::TraceBar>& trace);

}  // namespace slackline::report
