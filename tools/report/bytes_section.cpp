#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "parallel/plan/step_waits.h"
#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"
#include "tools/report/compressed_transfers.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

struct Total {
  double raw = 0.0;
  double sent = 0.0;
  double across = 0.0;  // groups of data ranks
};

bool is_reported(const std::vector<StepRecord>& steps, std::size_t axis) {
  return axis != kOuterAxis || std::ranges::any_of(steps, &StepRecord::has_workers);
}

// Counts the steps whose data ranks made several groups; a run may have them from a resume on, or
// up to one.
std::ptrdiff_t num_with_groups(const std::vector<StepRecord>& steps) {
  return std::ranges::count_if(
      steps, [](const StepRecord& step) { return step.axes.front().across_bytes.has_value(); });
}

std::array<Total, kReportedAxes.size()> totals_of(const std::vector<StepRecord>& steps) {
  std::array<Total, kReportedAxes.size()> totals{};
  for (const StepRecord& step : steps) {
    for (std::size_t axis = 0; axis < totals.size(); ++axis) {
      totals[axis].raw += step.axes[axis].raw_bytes;
      totals[axis].sent += step.axes[axis].sent_bytes;
      totals[axis].across += step.axes[axis].across_bytes.value_or(0.0);
    }
  }
  return totals;
}

std::vector<std::string> total_row(const std::string& name,
                                   const Total& total,
                                   const std::vector<StepRecord>& steps) {
  const auto count = static_cast<double>(steps.size());
  std::vector<std::string> row = {name,
                                  bytes_text(total.raw / count),
                                  bytes_text(total.sent / count),
                                  bytes_text(total.raw),
                                  bytes_text(total.sent),
                                  total.raw > 0.0 ? percent_text(total.sent / total.raw) : "-"};
  if (const auto grouped = num_with_groups(steps); grouped > 0) {
    row.push_back(bytes_text(total.across / static_cast<double>(grouped)));
  }
  return row;
}

Html axes_table(const std::vector<StepRecord>& steps) {
  const auto totals = totals_of(steps);
  Total all{};
  std::vector<std::vector<std::string>> rows;
  rows.reserve(totals.size() + 1);
  for (std::size_t axis = 0; axis < totals.size(); ++axis) {
    if (!is_reported(steps, axis)) {
      continue;
    }
    rows.push_back(total_row(std::string(kReportedAxes[axis]), totals[axis], steps));
    all.raw += totals[axis].raw;
    all.sent += totals[axis].sent;
    all.across += totals[axis].across;
  }
  rows.push_back(total_row("all", all, steps));
  std::vector<Column> columns = {{"axis"},
                                 {"raw a step", Align::right},
                                 {"sent a step", Align::right},
                                 {"raw in all", Align::right},
                                 {"sent in all", Align::right},
                                 {"sent / raw", Align::right}};
  if (num_with_groups(steps) > 0) {
    columns.push_back({"between groups a step", Align::right});
  }
  return table(columns, rows);
}

// Horizontal bars, each with its number: two for an axis.
Html axes_chart(const std::vector<StepRecord>& steps) {
  constexpr double kWidth = 420;
  constexpr double kLeft = 104;
  constexpr double kRight = 70;  // numbers
  constexpr double kRow = 20;
  constexpr double kTop = 6;
  constexpr double kBar = 14;
  const auto count = static_cast<double>(steps.size());
  const auto totals = totals_of(steps);
  double most = 1.0;
  for (const Total& total : totals) {
    most = std::max({most, total.raw / count, total.sent / count});
  }
  const Scale x{.high = most, .from = kLeft, .to = kWidth - kRight};
  Html content;
  double top = kTop;
  const auto add_row = [&](const std::string& name, const char* style, double bytes) {
    const double end = x(bytes);
    content +=
        svg_text(kLeft - 6, top + kBar - 3, {{"class", "lane"}, {"text-anchor", "end"}}, name);
    content += element("rect",
                       {{"class", style},
                        {"x", pixels(kLeft)},
                        {"y", pixels(top)},
                        {"width", pixels(end - kLeft)},
                        {"height", pixels(kBar)}});
    content += svg_text(end + 5, top + kBar - 3, {{"class", "value"}}, bytes_text(bytes));
    top += kRow;
  };
  for (std::size_t axis = 0; axis < totals.size(); ++axis) {
    if (is_reported(steps, axis)) {
      add_row(fmt::format("{}, raw", kReportedAxes[axis]), "raw c7", totals[axis].raw / count);
      add_row(fmt::format("{}, sent", kReportedAxes[axis]), "sent c0", totals[axis].sent / count);
    }
  }
  constexpr std::string_view kCaption =
      "Bytes of a step by axis, mean over steps, summed over ranks";
  return figure("bytes", kCaption, svg(kWidth, top, kCaption, content));
}

// Where a plan was changed on the way, the last is shown and the others are named.
std::string plan_sentence(const StepPlan& plan) {
  std::string text =
      fmt::format("The plan in force from step {}", plan.compression.back().from_step);
  if (plan.compression.size() > 1) {
    text += ", after plans from step ";
    for (std::size_t i = 0; i + 1 < plan.compression.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", plan.compression[i].from_step);
    }
  }
  const auto compressed =
      std::count_if(plan.classes().begin(), plan.classes().end(), is_compressed);
  return fmt::format(
      "{}: {} of {} classes of transfers are compressed.", text, compressed, plan.classes().size());
}

std::string known(const RunRecord& run, const std::optional<schedule::Seconds>& seconds) {
  const bool is_known = seconds && run.no_prediction.empty() && run.plan.has_measured_costs;
  return is_known ? seconds_text(seconds->value) : "-";
}

Html classes_table(const RunRecord& run) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(run.plan.classes().size());
  for (const PlannedClass& row : run.plan.classes()) {
    rows.push_back({schedule::class_text(row.members),
                    bytes_text(static_cast<double>(row.raw_bytes)),
                    bytes_text(static_cast<double>(row.sent_bytes)),
                    known(run, row.slack),
                    row.codec ? short_text(*row.codec) : "plain",
                    row.reason});
  }
  return table({{"class of transfers"},
                {"raw a step", Align::right},
                {"sent a step", Align::right},
                {"slack without codecs", Align::right},
                {"codec"},
                {"why"}},
               rows);
}

}  // namespace

Html bytes_section(const RunRecord& run) {
  Html all = text_element("h3", "Bytes");
  if (const std::vector<StepRecord> steps = run.metrics.timed(); !steps.empty()) {
    Html charts = axes_chart(steps);
    charts += element("div", {}, axes_table(steps));
    all += element("div", {{"class", "charts"}}, charts);
  }
  if (!run.plan.classes().empty()) {
    all += text_element("h4", "Plan");
    all += text_element("p", plan_sentence(run.plan));
    all += classes_table(run);
  }
  return all;
}

}  // namespace slackline::report
