#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

using schedule::Site;

constexpr std::size_t kMostBars = 48;

constexpr std::size_t kCompute = 0;
constexpr std::size_t kBubble = 1;
constexpr std::size_t kFirstAxis = 2;  // exposed, of each of kReportedAxes
constexpr std::size_t kAgreement = kFirstAxis + kReportedAxes.size();
constexpr std::size_t kOther = kAgreement + 1;
constexpr std::size_t kNumParts = kOther + 1;

using Parts = std::array<double, kNumParts>;

constexpr std::array kPartNames = {"compute",
                                   "bubble",
                                   "exposed: tensor",
                                   "exposed: pipeline",
                                   "exposed: data",
                                   "exposed: embedding",
                                   "exposed: outer rounds",
                                   "exposed: agreement on the step",
                                   "other (reading data, work between passes)"};
static_assert(kPartNames.size() == kNumParts);

// They add up to the step's seconds.
Parts parts_of(const StepRecord& step) {
  Parts parts{};
  parts[kCompute] = step.seconds.compute;
  parts[kBubble] = step.seconds.bubble;
  double axes = 0.0;
  for (std::size_t axis = 0; axis < kReportedAxes.size(); ++axis) {
    parts[kFirstAxis + axis] = step.axes[axis].exposed_seconds;
    axes += step.axes[axis].exposed_seconds;
  }
  parts[kAgreement] = std::max(0.0, step.seconds.exposed - axes);
  parts[kOther] = step.seconds.other;
  return parts;
}

Parts mean_parts(const std::vector<StepRecord>& steps, std::size_t begin, std::size_t end) {
  Parts mean{};
  for (std::size_t i = begin; i < end; ++i) {
    const Parts parts = parts_of(steps[i]);
    for (std::size_t part = 0; part < kNumParts; ++part) {
      mean[part] += parts[part] / static_cast<double>(end - begin);
    }
  }
  return mean;
}

double sum(const Parts& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

// The mean of the pipeline ranks of the predicted timeline, which counts transfers of the tensor
// axis as compute and has no outer rounds.
Parts predicted_parts(const StepPlan& plan) {
  Parts mean{};
  const double share = 1.0 / static_cast<double>(plan.timeline.ranks.size());
  for (const schedule::RankTimes& rank : plan.timeline.ranks) {
    mean[kCompute] += share * (rank.compute + rank.update).value;
    mean[kBubble] += share * rank.bubble.value;
    mean[kFirstAxis + 1] +=
        share *
        (rank.exposed_at(Site::pipeline_forward) + rank.exposed_at(Site::pipeline_backward)).value;
    mean[kFirstAxis + 2] +=
        share *
        (rank.exposed_at(Site::data_gradient) + rank.exposed_at(Site::parameter_gather)).value;
    mean[kFirstAxis + 3] += share * rank.exposed_at(Site::embedding).value;
  }
  mean[kFirstAxis] = kUnknown;
  mean[kFirstAxis + kOuterAxis] = kUnknown;
  mean[kAgreement] = kUnknown;
  mean[kOther] = kUnknown;
  return mean;
}

// The mean of steps that follow each other, in the unit of the chart.
struct Bar {
  std::int64_t step = 0;  // the first
  Parts parts{};
};

std::string part_class(std::size_t part) {
  return fmt::format("part c{}", part);
}

// About six numbers under the bars, no more than fit.
Html step_numbers(const std::vector<Bar>& bars, const Frame& frame, double pitch) {
  constexpr std::size_t kMost = 6;
  const std::size_t every = (bars.size() + kMost - 1) / kMost;
  Html all;
  for (std::size_t i = 0; i < bars.size(); i += every) {
    all += svg_text(frame.left + (static_cast<double>(i) + 0.5) * pitch,
                    frame.height - frame.bottom + 15,
                    {{"class", "x-tick"}, {"text-anchor", "middle"}},
                    fmt::format("{}", bars[i].step));
  }
  return all;
}

// The parts of a bar, from the bottom up.
Html drawn(const Bar& bar, double left, double pitch, const Frame& frame) {
  const Scale y = frame.y();
  Html parts;
  double below = 0.0;
  for (std::size_t part = 0; part < kNumParts; ++part) {
    const double value = bar.parts[part];
    if (value > 0.0) {
      const std::string title = fmt::format(
          "{}: {} {} {}", bar.step, kPartNames[part], number_text(value), frame.y_label);
      parts += element("rect",
                       {{"class", part_class(part)},
                        {"x", pixels(left)},
                        {"y", pixels(y(below + value))},
                        {"width", pixels(0.8 * pitch)},
                        {"height", pixels(y(below) - y(below + value))}},
                       text_element("title", title));
    }
    below += value;
  }
  return element("g", {{"class", "bar"}}, parts);
}

std::vector<Bar> bars_of(const std::vector<StepRecord>& steps,
                         std::size_t per_bar,
                         const TimeUnit& unit) {
  std::vector<Bar> bars;
  for (std::size_t begin = 0; begin < steps.size(); begin += per_bar) {
    const std::size_t end = std::min(begin + per_bar, steps.size());
    Bar& bar = bars.emplace_back(Bar{steps[begin].step, mean_parts(steps, begin, end)});
    for (double& part : bar.parts) {
      part *= unit.per_second;
    }
  }
  return bars;
}

// A part that is 0 in all bars has no entry.
std::vector<LegendEntry> entries_of(const std::vector<Bar>& bars) {
  std::vector<LegendEntry> entries;
  for (std::size_t part = 0; part < kNumParts; ++part) {
    double total = 0.0;
    for (const Bar& bar : bars) {
      total += bar.parts[part];
    }
    if (total > 0.0) {
      entries.push_back({.style = part_class(part), .name = kPartNames[part]});
    }
  }
  return entries;
}

// Vertical bars of the steps' parts. REQUIRES: there are steps.
Html steps_chart(const std::vector<StepRecord>& steps) {
  const std::size_t per_bar = (steps.size() + kMostBars - 1) / kMostBars;
  double longest = 0.0;
  for (const StepRecord& step : steps) {
    longest = std::max(longest, sum(parts_of(step)));
  }
  const TimeUnit unit = time_unit(longest);
  const std::vector<Bar> bars = bars_of(steps, per_bar, unit);
  double highest = 0.0;
  for (const Bar& bar : bars) {
    highest = std::max(highest, sum(bar.parts));
  }
  constexpr int kTicks = 5;
  const Frame frame{
      .x_label = "step", .y_label = unit.name, .y_ticks = round_ticks(0.0, highest, kTicks)};
  const double pitch = (frame.width - frame.left - frame.right) / static_cast<double>(bars.size());
  Html content = axes(frame);
  content += step_numbers(bars, frame, pitch);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    content += drawn(bars[i], frame.left + (static_cast<double>(i) + 0.1) * pitch, pitch, frame);
  }
  const std::string caption =
      per_bar == 1 ? "Where each step's time went, mean over ranks"
                   : fmt::format("Where the time went, mean over ranks and {} steps", per_bar);
  return figure(
      "step-time", caption, svg(frame.width, frame.height, caption, content), entries_of(bars));
}

Html means_table(const RunRecord& run, const std::vector<StepRecord>& steps) {
  const std::size_t first = steps.size() > 1 ? 1 : 0;  // the first step is slower than all others
  const Parts measured = mean_parts(steps, first, steps.size());
  const bool predicts = run.no_prediction.empty();
  const Parts predicted = predicts ? predicted_parts(run.plan) : Parts{};
  const double step = sum(measured);
  const auto row = [&](const std::string& name, double seconds, double guess) {
    std::vector<std::string> cells = {name, seconds_text(seconds), percent_text(seconds / step)};
    if (predicts) {
      cells.push_back(seconds_text(guess));
    }
    return cells;
  };
  std::vector<std::vector<std::string>> rows;
  rows.reserve(kNumParts + 1);
  rows.push_back(row("step", step, run.plan.timeline.step.value));
  for (std::size_t part = 0; part < kNumParts; ++part) {
    rows.push_back(row(kPartNames[part], measured[part], predicted[part]));
  }
  std::vector<Column> columns = {
      {"part"}, {"measured, mean", Align::right}, {"share", Align::right}};
  if (predicts) {
    columns.push_back({"predicted", Align::right});
  }
  Html all = table(columns, rows);
  all +=
      text_element("p",
                   "Exposed: waiting for a transfer that all its ranks had submitted; waiting "
                   "before that is bubble. Means leave out the first step. A prediction counts the "
                   "optimizer, and transfers of the tensor axis, as compute.");
  return all;
}

}  // namespace

Html step_time_section(const RunRecord& run) {
  Html all = text_element("h3", "Step time");
  const std::vector<StepRecord> timed = run.metrics.timed();
  if (timed.empty()) {
    all += notice("No step was timed.");
    return all;
  }
  Html charts = steps_chart(timed);
  charts += element("div", {}, means_table(run, timed));
  all += element("div", {{"class", "charts"}}, charts);
  return all;
}

}  // namespace slackline::report
