#include "tools/report/charts/chart_frame.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace slackline::report {

namespace {

// The smallest of 1, 2 and 5 times a power of ten that is no less than `least`.
double round_step(double least) {
  constexpr double kNoise = 1e-9;  // of a step that is round already
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1.0 - kNoise)) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

std::string tick_text(double value) {
  return fmt::format("{:.10g}", value);
}

Html legend(const std::vector<LegendEntry>& entries) {
  Html items;
  for (const LegendEntry& entry : entries) {
    Html item =
        element("svg",
                {{"class", "key"}, {"viewBox", "0 0 12 12"}, {"aria-hidden", "true"}},
                element("rect", {{"class", entry.style}, {"width", "12"}, {"height", "12"}}));
    item += text_of(entry.name);
    items += element("li", {}, item);
  }
  return element("ul", {{"class", "legend"}}, items);
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int about) {
  constexpr double kMost = 1e300;  // whose differences are still numbers
  constexpr double kLeast = 1e-290;
  constexpr double kLeastShare = 1e-12;  // of a value's size: what a double can still tell apart
  low = std::clamp(low, -kMost, kMost);
  high = std::clamp(high, -kMost, kMost);
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= std::max(kLeast, kLeastShare * size)) {
    const double room = size <= kLeast ? 1.0 : 0.1 * size;
    low = low == 0.0 ? 0.0 : low - room;
    high += room;
  }
  const double step = round_step((high - low) / about);
  constexpr double kNoise = 1e-6;  // of a step: an end that is a tick stays one
  const double first = std::floor(low / step + kNoise);
  const double last = std::max(std::ceil(high / step - kNoise), first + 1.0);
  std::vector<double> ticks;
  ticks.reserve(static_cast<std::size_t>(last - first) + 1);
  for (double tick = first; tick <= last; tick += 1.0) {
    ticks.push_back(tick * step);
  }
  return ticks;
}

std::string pixels(double value) {
  return fmt::format("{:.2f}", value);
}

Scale Frame::x() const {
  return {.low = x_ticks.front(), .high = x_ticks.back(), .from = left, .to = width - right};
}

Scale Frame::y() const {
  return {.low = y_ticks.front(), .high = y_ticks.back(), .from = height - bottom, .to = top};
}

Html svg_text(double x, double y, const Attributes& attributes, std::string_view text) {
  Attributes all = {{"x", pixels(x)}, {"y", pixels(y)}};
  all.insert(all.end(), attributes.begin(), attributes.end());
  return element("text", all, text_of(text));
}

Html axes(const Frame& frame) {
  constexpr double kGap = 5;
  constexpr double kText = 4;  // half a line
  Html all;
  const double bottom = frame.height - frame.bottom;
  for (const double tick : frame.y_ticks) {
    const double y = frame.y()(tick);
    all += grid_line(frame.left, y, frame.width - frame.right, y);
    all += svg_text(frame.left - kGap,
                    y + kText,
                    {{"class", "y-tick"}, {"text-anchor", "end"}},
                    tick_text(tick));
  }
  for (const double tick : frame.x_ticks) {
    const double x = frame.x()(tick);
    all += grid_line(x, frame.top, x, bottom);
    all +=
        svg_text(x, bottom + 15, {{"class", "x-tick"}, {"text-anchor", "middle"}}, tick_text(tick));
  }
  all += svg_text((frame.left + frame.width - frame.right) / 2,
                  frame.height - kGap,
                  {{"class", "label"}, {"text-anchor", "middle"}},
                  frame.x_label);
  const double middle = (frame.top + bottom) / 2;
  all += svg_text(11,
                  middle,
                  {{"class", "label"},
                   {"text-anchor", "middle"},
                   {"transform", fmt::format("rotate(-90 11 {:.2f})", middle)}},
                  frame.y_label);
  return all;
}

Html grid_line(double x1, double y1, double x2, double y2) {
  return element("line",
                 {{"class", "grid"},
                  {"x1", pixels(x1)},
                  {"y1", pixels(y1)},
                  {"x2", pixels(x2)},
                  {"y2", pixels(y2)}});
}

Html svg(double width, double height, std::string_view title, const Html& content) {
  Html all = text_element("title", title);
  all += content;
  return element("svg",
                 {{"viewBox", fmt::format("0 0 {:.0f} {:.0f}", width, height)},
                  {"role", "img"},
                  {"aria-label", std::string(title)}},
                 all);
}

Html figure(const std::string& kind,
            std::string_view caption,
            const Html& chart,
            const std::vector<LegendEntry>& entries) {
  Html content = text_element("figcaption", caption);
  content += element("div", {{"class", "plot"}}, chart);
  if (!entries.empty()) {
    content += legend(entries);
  }
  return element("figure", {{"class", kind}}, content);
}

}  // namespace slackline::report
