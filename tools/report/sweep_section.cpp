#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/line_chart.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

constexpr const char* kSpeed = "tokens_per_second";
constexpr const char* kSteps = "steps";
constexpr const char* kDone = "done";  // the status of a run that came to its end

// Columns of a table, besides the number. More would not fit on paper: there are several tables.
constexpr std::size_t kMostColumns = 6;

std::string numbered(std::size_t run) {
  return fmt::format("{}", run + 1);
}

std::string settings_text(const SweepRun& run) {
  std::string text;
  for (const auto& [key, value] : run.settings) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  }
  return text.empty() ? "-" : text;
}

Html runs_table(const SweepRecord& sweep) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(sweep.runs.size());
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    const SweepRun& run = sweep.runs[i];
    rows.push_back({numbered(i), run.directory, settings_text(run), run.status, run.message});
  }
  return table({{"number"}, {"run"}, {"settings"}, {"status"}, {"message"}}, rows);
}

// In the order in which they first appear.
std::vector<std::string> column_names(const SweepRecord& sweep) {
  std::vector<std::string> names;
  for (const SweepRun& run : sweep.runs) {
    for (const auto& [name, value] : run.columns) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  return names;
}

std::string column_of(const SweepRun& run, const std::string& name) {
  const auto found =
      std::ranges::find(run.columns, name, &std::pair<std::string, std::string>::first);
  return found == run.columns.end() ? "-" : found->second;
}

Html columns_table(const SweepRecord& sweep, std::span<const std::string> names) {
  std::vector<Column> columns = {{"number"}};
  for (const std::string& name : names) {
    columns.push_back({name, Align::right});
  }
  std::vector<std::vector<std::string>> rows;
  rows.reserve(sweep.runs.size());
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {numbered(i)};
    for (const std::string& name : names) {
      row.push_back(column_of(sweep.runs[i], name));
    }
  }
  return table(columns, rows);
}

Html columns_tables(const SweepRecord& sweep) {
  const std::vector<std::string> names = column_names(sweep);
  Html all;
  for (std::size_t begin = 0; begin < names.size(); begin += kMostColumns) {
    const std::size_t count = std::min(kMostColumns, names.size() - begin);
    all += columns_table(sweep, std::span(names).subspan(begin, count));
  }
  return all;
}

// The loss to show against speed: of validation where any run has it.
std::string loss_column(const SweepRecord& sweep) {
  const bool evaluated = std::any_of(sweep.runs.begin(), sweep.runs.end(), [](const SweepRun& run) {
    return run.numbers.contains("eval_loss");
  });
  return evaluated ? "eval_loss" : "loss";
}

// A point's title says the number of steps if that is known and not the same for all.
std::string point_title(const SweepRun& run, bool says_steps) {
  const auto steps = run.numbers.find(kSteps);
  return fmt::format(
      "{}: {}{}",
      run.directory,
      settings_text(run),
      says_steps && steps != run.numbers.end() ? fmt::format(", {:.0f} steps", steps->second) : "");
}

struct SpeedPoint {
  std::size_t run = 0;
  double speed = 0.0;
  double loss = 0.0;
};

// Takes runs that came to their end alone: the loss of a shorter run is no match for theirs.
std::vector<SpeedPoint> speed_points(const SweepRecord& sweep, const std::string& loss) {
  std::vector<SpeedPoint> points;
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    const SweepRun& run = sweep.runs[i];
    if (run.status == kDone && run.numbers.contains(kSpeed) && run.numbers.contains(loss)) {
      points.push_back({i, run.numbers.at(kSpeed), run.numbers.at(loss)});
    }
  }
  return points;
}

bool lengths_differ(const SweepRecord& sweep, const std::vector<SpeedPoint>& points) {
  std::set<double> lengths;
  for (const SpeedPoint& point : points) {
    const auto& numbers = sweep.runs[point.run].numbers;
    lengths.insert(numbers.contains(kSteps) ? numbers.at(kSteps) : 0.0);
  }
  return lengths.size() > 1;
}

std::vector<double> ticks_over(const std::vector<SpeedPoint>& points, double SpeedPoint::*value) {
  constexpr int kTicks = 4;
  const auto [low, high] = std::ranges::minmax(points, {}, value);
  return round_ticks(low.*value, high.*value, kTicks);
}

// Each run's point with its number.
Html speed_chart(const SweepRecord& sweep,
                 const std::vector<SpeedPoint>& points,
                 const std::string& loss) {
  const bool differ = lengths_differ(sweep, points);
  const std::string caption = fmt::format("Speed against {}: {}",
                                          loss == "loss" ? "training loss" : "validation loss",
                                          differ ? "losses are of different numbers of steps"
                                                 : "the better runs are below and to the right");
  if (points.empty()) {
    return notice(fmt::format("{}: no values", caption));
  }
  const Frame frame{.x_label = "tokens per second",
                    .y_label = loss,
                    .x_ticks = ticks_over(points, &SpeedPoint::speed),
                    .y_ticks = ticks_over(points, &SpeedPoint::loss)};
  Html content = axes(frame);
  for (const SpeedPoint& point : points) {
    const double left = frame.x()(point.speed);
    const double top = frame.y()(point.loss);
    content +=
        element("circle",
                {{"class", "point c0"}, {"cx", pixels(left)}, {"cy", pixels(top)}, {"r", "4"}},
                text_element("title", point_title(sweep.runs[point.run], differ)));
    // Towards the middle, so that it stays inside.
    const bool right_half = left > frame.width / 2;
    content += svg_text(right_half ? left - 6 : left + 6,
                        top - 5,
                        {{"class", "point-label"}, {"text-anchor", right_half ? "end" : "start"}},
                        numbered(point.run));
  }
  return figure("scatter", caption, svg(frame.width, frame.height, caption, content));
}

Html speed_against_loss(const SweepRecord& sweep) {
  const std::string loss = loss_column(sweep);
  const std::vector<SpeedPoint> points = speed_points(sweep, loss);
  Html all = speed_chart(sweep, points, loss);
  if (const std::size_t missing = sweep.runs.size() - points.size(); missing > 0) {
    all += text_element("p",
                        fmt::format("{} of {} runs have no such point: they are not done, or have "
                                    "no such number.",
                                    missing,
                                    sweep.runs.size()));
  }
  return element("div", {}, all);
}

Html loss_curves(const SweepRecord& sweep) {
  LineChart chart{
      .kind = "sweep-loss", .caption = "Training loss, by number of the run", .y_label = "loss"};
  static_assert(SweepRecord::kMostCurves <= kNumColours);
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    const std::vector<StepRecord>& steps = sweep.runs[i].metrics.steps;
    if (steps.empty()) {
      continue;
    }
    const auto colour = static_cast<int>(chart.series.size());
    chart.series.push_back(series_over_steps(steps, numbered(i), colour, &StepRecord::loss));
  }
  if (chart.series.empty()) {
    return {};
  }
  if (sweep.runs_with_steps > chart.series.size()) {
    chart.caption +=
        fmt::format(" (the first {} of {})", chart.series.size(), sweep.runs_with_steps);
  }
  return line_chart(chart);
}

Html cut_remarks(const SweepRecord& sweep) {
  Html all;
  for (const SweepRun& run : sweep.runs) {
    if (run.metrics.cut) {
      all +=
          notice(fmt::format("{}: the last line of metrics.jsonl is cut ({}). The rest is shown.",
                             run.directory,
                             *run.metrics.cut));
    }
  }
  return all;
}

}  // namespace

Html sweep_section(const SweepRecord& sweep) {
  Html all = text_element("h2", fmt::format("Sweep {}", sweep.directory));
  if (sweep.runs.empty()) {
    all += notice("The sweep has no runs.");
    return element("section", {{"class", "sweep"}}, all);
  }
  all += cut_remarks(sweep);
  all += runs_table(sweep);
  Html charts = speed_against_loss(sweep);
  charts += loss_curves(sweep);
  all += element("div", {{"class", "charts"}}, charts);
  all += columns_tables(sweep);
  return element("section", {{"class", "sweep"}}, all);
}

}  // namespace slackline::report
