#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tools/report/charts/line_chart.h"
#include "tools/report/charts/units.h"
#include "tools/report/sections.h"

namespace slackline::report {

namespace {

constexpr std::size_t kMostRows = 40;

using Ends = std::vector<StepRecord>;  // steps that ended rounds

Ends ends_of(const Metrics& metrics) {
  Ends ends;
  std::ranges::copy_if(metrics.steps, std::back_inserter(ends), [](const StepRecord& step) {
    return step.round.has_value();
  });
  return ends;
}

// Seconds between arrival and the end that used it; the rest of a round's period.
double slack_of(const TravelRecord& travel) {
  return std::max(0.0, travel.period_seconds - travel.round_seconds);
}

// The lowest and the highest loss of workers; not finite where one of them is not.
struct Spread {
  double low = kUnknown;
  double high = kUnknown;
};

Spread spread_of(const RoundRecord& round) {
  const std::vector<double>& losses = round.worker_losses;
  const bool known = !losses.empty() &&
                     std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); });
  return known ? Spread{std::ranges::min(losses), std::ranges::max(losses)} : Spread{};
}

Series curve(const Ends& ends,
             std::string name,
             int colour,
             const std::function<double(const RoundRecord&)>& value) {
  return series_over_steps(
      ends, std::move(name), colour, [&](const StepRecord& end) { return value(*end.round); });
}

// Nothing where the first curve has no point.
Html chart_of(const LineChart& chart) {
  const bool has_points = std::ranges::any_of(
      chart.series.front().points, [](const Point& point) { return std::isfinite(point.y); });
  return has_points ? line_chart(chart) : Html{};
}

Html times_chart(const Ends& ends) {
  double longest = 0.0;
  for (const StepRecord& end : ends) {
    if (const auto& travel = end.round->travel) {
      longest = std::max({longest, travel->round_seconds, travel->period_seconds});
    }
  }
  const TimeUnit unit = time_unit(longest);
  const auto seconds = [&](std::string name, int colour, double TravelRecord::*field) {
    return curve(ends, std::move(name), colour, [&unit, field](const RoundRecord& round) {
      return round.travel ? (*round.travel).*field * unit.per_second : kUnknown;
    });
  };
  return chart_of(
      {.kind = "round-times",
       .caption = "Rounds by the step that used them, and the time that steps had to hide them",
       .y_label = unit.name,
       .series = {seconds("from sending to arrival", 0, &TravelRecord::round_seconds),
                  seconds("steps beside it", 1, &TravelRecord::period_seconds),
                  seconds("waited", 3, &TravelRecord::wait_seconds)}});
}

Html losses_chart(const Ends& ends) {
  return chart_of(
      {.kind = "worker-losses",
       .caption = "Losses of the workers at the ends of rounds",
       .y_label = "loss",
       .series = {
           curve(ends, "highest", 0, [](const RoundRecord& row) { return spread_of(row).high; }),
           curve(ends, "lowest", 1, [](const RoundRecord& row) { return spread_of(row).low; })}});
}

Html distance_chart(const Ends& ends) {
  return chart_of(
      {.kind = "worker-distance",
       .caption = "Distance between workers: RMS from their mean, when they were last sent",
       .y_label = "distance",
       .series = {curve(ends, "distance", 2, &RoundRecord::distance)}});
}

std::string summary(const RunRecord& run, const Ends& ends) {
  std::int64_t arrived = 0;
  std::int64_t hidden = 0;
  std::int64_t left_out = 0;
  double waited = 0.0;
  for (const StepRecord& end : ends) {
    left_out += end.round->left_out ? 1 : 0;
    if (const auto& travel = end.round->travel) {
      ++arrived;
      hidden += travel->wait_seconds == 0.0 ? 1 : 0;
      waited += travel->wait_seconds;
    }
  }
  double all = 0.0;
  for (const StepRecord& step : run.metrics.steps) {
    all += std::isfinite(step.step_seconds) ? step.step_seconds : 0.0;
  }
  std::string text = fmt::format("{} workers; {} rounds ended, {} left out.",
                                 ends.back().round->worker_losses.size(),
                                 ends.size(),
                                 left_out);
  if (arrived > 0) {
    text += fmt::format(
        " Of {} rounds that arrived, {} hid behind steps; training waited {} for rounds, {} of the "
        "seconds of its steps.",
        arrived,
        hidden,
        seconds_text(waited),
        all > 0.0 ? percent_text(waited / all) : "-");
  }
  const auto shortest =
      run.no_prediction.empty() ? run.plan.shortest_period() : std::optional<std::int64_t>{};
  if (shortest) {
    text += fmt::format(" By its links a round takes {}, which {} steps or more hide.",
                        seconds_text(run.plan.round->seconds->value),
                        *shortest);
  }
  return text;
}

std::vector<std::string> row_of(const StepRecord& end) {
  const RoundRecord& round = *end.round;
  const Spread losses = spread_of(round);
  std::vector<std::string> row = {fmt::format("{}", end.step)};
  if (const auto& travel = round.travel) {
    const bool may_hide = travel->period_seconds > 0.0;
    row.insert(row.end(),
               {fmt::format("{}", travel->sent_step),
                seconds_text(travel->round_seconds),
                may_hide ? seconds_text(travel->period_seconds) : "-",
                may_hide ? seconds_text(slack_of(*travel)) : "-",
                seconds_text(travel->wait_seconds)});
  } else {
    row.insert(row.end(), 5, "-");
  }
  row.insert(row.end(),
             {fmt::format("{}", round.period),
              number_text(round.penalty),
              number_text(round.distance),
              number_text(losses.low),
              number_text(losses.high),
              round.left_out ? "left out: not finite" : ""});
  return row;
}

Html ends_table(const Ends& ends) {
  std::vector<std::vector<std::string>> rows;
  const std::size_t first = ends.size() - std::min(ends.size(), kMostRows);
  for (std::size_t i = first; i < ends.size(); ++i) {
    rows.push_back(row_of(ends[i]));
  }
  Html all;
  if (first > 0) {
    all += text_element("p", fmt::format("The last {} of {} ends.", kMostRows, ends.size()));
  }
  all += table({{"end with step", Align::right},
                {"sent with step", Align::right},
                {"travelled", Align::right},
                {"steps beside it", Align::right},
                {"slack", Align::right},
                {"waited", Align::right},
                {"next period, steps", Align::right},
                {"penalty", Align::right},
                {"distance", Align::right},
                {"lowest loss", Align::right},
                {"highest loss", Align::right},
                {"remark"}},
               rows);
  all += text_element(
      "p",
      "A round travels from the end that sends it until the next one uses it, or while its own end "
      "waits. Slack is what was left of the steps beside it when it had arrived. Seconds are those "
      "of the first worker's slowest rank.");
  return all;
}

}  // namespace

Html rounds_section(const RunRecord& run) {
  const Ends ends = ends_of(run.metrics);
  if (ends.empty()) {
    return {};
  }
  Html all = text_element("h3", "Outer rounds");
  all += text_element("p", summary(run, ends));
  Html charts = times_chart(ends);
  charts += losses_chart(ends);
  charts += distance_chart(ends);
  all += element("div", {{"class", "charts"}}, charts);
  all += ends_table(ends);
  return all;
}

}  // namespace slackline::report
