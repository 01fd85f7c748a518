#include <algorithm>

#include <fmt/format.h>

#include "tools/report/charts/line_chart.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

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
  const auto skipped = std::ranges::count_if(metrics.steps, &StepRecord::skipped);
  if (skipped > 0) {
    all += notice(fmt::format("{} steps were skipped: loss or norm was not finite.", skipped));
  }
  std::vector<Series> losses = {
      series_over_steps(metrics.steps, "training loss", 0, &StepRecord::loss)};
  if (!metrics.evaluations.empty()) {
    losses.push_back(
        series_over_steps(metrics.evaluations, "validation loss", 1, &EvaluatedStep::loss));
  }
  Html charts = line_chart(
      {.kind = "loss", .caption = "Loss", .y_label = "loss", .series = std::move(losses)});
  charts += line_chart(
      {.kind = "norm",
       .caption = "Gradient norm, before clipping",
       .y_label = "norm",
       .series = {series_over_steps(metrics.steps, "gradient norm", 2, &StepRecord::grad_norm)}});
  all += element("div", {{"class", "charts"}}, charts);
  return all;
}

Html comparison_section(const std::vector<RunRecord>& runs) {
  LineChart chart{.kind = "loss", .caption = "Training loss of all runs", .y_label = "loss"};
  for (std::size_t i = 0; i < runs.size() && i < kNumColours; ++i) {
    chart.series.push_back(series_over_steps(
        runs[i].metrics.steps, runs[i].directory, static_cast<int>(i), &StepRecord::loss));
  }
  Html all = text_element("h2", "Runs compared");
  if (runs.size() > kNumColours) {
    all += notice(fmt::format("The first {} of {} runs are shown.", kNumColours, runs.size()));
  }
  all += element("div", {{"class", "charts"}}, line_chart(chart));
  return all;
}

}  // namespace slackline::report
