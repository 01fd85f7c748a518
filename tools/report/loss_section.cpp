#include <algorithm>

#include <fmt/format.h>

#include "tools/report/charts/line_chart.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

using Field = double StepRecord::*;

Series curve(const Metrics& metrics, Field field, std::string name, int colour) {
  Series series{.name = std::move(name), .colour = colour};
  series.points.reserve(metrics.steps.size());
  for (const StepRecord& step : metrics.steps) {
    series.points.push_back({.x = static_cast<double>(step.step), .y = step.*field});
  }
  return series;
}

Series evaluations(const Metrics& metrics) {
  Series series{.name = "validation loss", .colour = 1};
  series.points.reserve(metrics.evaluations.size());
  for (const EvaluatedStep& evaluation : metrics.evaluations) {
    series.points.push_back({.x = static_cast<double>(evaluation.step), .y = evaluation.loss});
  }
  return series;
}

}  // namespace

Html loss_section(const RunRecord& run) {
  const Metrics& metrics = run.metrics;
  Html all = text_element("h3", "Loss");
  if (metrics.cut) {
    all += notice(fmt::format(
        "The last line of metrics.jsonl is cut, as a crash leaves it ({}). The rest is shown.",
        *metrics.cut));
  }
  if (metrics.steps.empty()) {
    all += notice("metrics.jsonl has no steps yet.");
    return all;
  }
  const auto skipped = std::count_if(metrics.steps.begin(),
                                     metrics.steps.end(),
                                     [](const StepRecord& step) { return step.skipped; });
  if (skipped > 0) {
    all += notice(fmt::format("{} steps were skipped: loss or norm was not finite.", skipped));
  }
  std::vector<Series> losses = {curve(metrics, &StepRecord::loss, "training loss", 0)};
  if (!metrics.evaluations.empty()) {
    losses.push_back(evaluations(metrics));
  }
  Html charts = line_chart({.kind = "loss",
                            .caption = "Loss",
                            .x_label = "step",
                            .y_label = "loss",
                            .series = std::move(losses)});
  charts += line_chart({.kind = "norm",
                        .caption = "Gradient norm, before clipping",
                        .x_label = "step",
                        .y_label = "norm",
                        .series = {curve(metrics, &StepRecord::grad_norm, "gradient norm", 2)}});
  all += element("div", {{"class", "charts"}}, charts);
  return all;
}

Html comparison_section(const std::vector<RunRecord>& runs) {
  LineChart chart{
      .kind = "loss", .caption = "Training loss of all runs", .x_label = "step", .y_label = "loss"};
  for (std::size_t i = 0; i < runs.size() && i < kNumColours; ++i) {
    chart.series.push_back(
        curve(runs[i].metrics, &StepRecord::loss, runs[i].directory, static_cast<int>(i)));
  }
  Html all = text_element("h2", "Runs compared");
  if (runs.size() > kNumColours) {
    all += notice(fmt::format("The first {} of {} runs are shown.", kNumColours, runs.size()));
  }
  all += element("div", {{"class", "charts"}}, line_chart(chart));
  return all;
}

}  // namespace slackline::report
