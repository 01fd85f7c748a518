// Charts as text; tests/tools/report/report_page_test.py looks at them in a browser.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/line_chart.h"
#include "tools/report/charts/page_style.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

using Catch::Contains;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

LineChart chart_of(const std::vector<Point>& points) {
  return {.kind = "loss", .caption = "Loss", .series = {{.name = "<loss>", .points = points}}};
}

}  // namespace

TEST_CASE("ticks are round, enclose the range and are never fewer than two") {
  CHECK(round_ticks(0.0, 10.0, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(round_ticks(1.0, 12.0, 5) == std::vector<double>{0, 5, 10, 15});
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{3.0, 3.0},
                                                                        {0.0, 0.0},
                                                                        {-2.0, -2.0},
                                                                        {1e-9, 2e-9},
                                                                        {-1e6, 1e6},
                                                                        {5.0, 5.0 + 1e-15},
                                                                        {-1e300, 1e300},
                                                                        {0.0, 5e-324},
                                                                        {1e-310, 3e-310}}) {
    const std::vector<double> ticks = round_ticks(low, high, 5);
    INFO(low << " to " << high);
    REQUIRE(ticks.size() >= 2);
    CHECK(ticks.size() < 20);
    CHECK(std::is_sorted(ticks.begin(), ticks.end(), std::less_equal<>()));  // and none is twice
    CHECK(ticks.front() <= low);
    CHECK(ticks.back() >= high);
  }
}

TEST_CASE("values that no scale holds are drawn at its ends") {
  const std::string html = line_chart(chart_of({{1, -1.7e308}, {2, 0.0}, {3, 1.7e308}})).str();
  CHECK(occurrences(html, "inf") == 0);
  CHECK(occurrences(html, "<circle") == 3);
  const Frame frame;
  CHECK(occurrences(html, "cy=\"" + pixels(frame.height - frame.bottom) + "\"") == 1);
  CHECK(occurrences(html, "cy=\"" + pixels(frame.top) + "\"") == 1);
}

TEST_CASE("a value that is not finite breaks the line, and one without neighbours has a mark") {
  const std::string html =
      line_chart(chart_of({{1, 4.0}, {2, 3.0}, {3, kNaN}, {4, 2.0}, {5, kNaN}})).str();
  CHECK(occurrences(html, "<polyline") == 2);
  CHECK(occurrences(html, "<circle") == 3);
  CHECK(occurrences(html, "nan") == 0);
  CHECK_THAT(html, Contains("&lt;loss&gt;") && !Contains("<loss>"));
}

TEST_CASE("a chart of nothing says so") {
  CHECK_THAT(line_chart(chart_of({{1, kNaN}})).str(), Contains("Loss: no values"));
}

TEST_CASE("a long series keeps its ends of value, and a short one every point") {
  std::vector<Point> points;
  points.reserve(100000);
  for (int i = 0; i < 100000; ++i) {
    points.push_back({static_cast<double>(i), std::sin(i * 0.01)});
  }
  points[54321].y = 7.0;
  points[54322].y = -7.0;
  const std::vector<Point> kept = thinned(points, 1000);
  REQUIRE(kept.size() <= 1000);
  double high = 0.0;
  double low = 0.0;
  double last = -1.0;
  for (const Point& point : kept) {
    high = std::max(high, point.y);
    low = std::min(low, point.y);
    REQUIRE(point.x > last);
    last = point.x;
  }
  CHECK(high == 7.0);
  CHECK(low == -7.0);
  const std::vector<Point> all = thinned(points, points.size());
  CHECK(std::equal(
      all.begin(), all.end(), points.begin(), points.end(), [](const Point& a, const Point& b) {
        return a.x == b.x && a.y == b.y;
      }));
}

TEST_CASE("a step without a loss hides no spike of a long series, nor points between such steps") {
  std::vector<Point> points;
  points.reserve(9000);
  for (int i = 0; i < 9000; ++i) {
    points.push_back({static_cast<double>(i), i % 3 == 0 ? kNaN : 2.0});
  }
  points[4001].y = 40.0;
  const std::vector<Point> kept = thinned(points, 3000);
  REQUIRE(kept.size() <= 3000);
  CHECK(std::ranges::any_of(kept, [](const Point& point) { return point.y == 40.0; }));
  CHECK(std::ranges::any_of(kept, [](const Point& point) { return std::isnan(point.y); }));
  const std::string drawn =
      line_chart({.kind = "loss", .series = {{.name = "one", .points = points}}}).str();
  CHECK_THAT(drawn, Contains("<circle"));
}

TEST_CASE("a page has a colour for every part of a step") {
  for (int part = 0; part < 9; ++part) {
    INFO(part);
    CHECK_THAT(page_style().str(), Contains(fmt::format(".c{} {{ fill: var(--c{})", part, part)));
  }
}

TEST_CASE("numbers are written for people") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(999) == "999 B");
  CHECK(bytes_text(1234567) == "1.235 MB");
  CHECK(seconds_text(0.0123) == "12.3 ms");
  CHECK(seconds_text(2.5e-5) == "25 µs");
  CHECK(seconds_text(kNaN) == "-");
  CHECK(number_text(16492.3) == "16492");
  CHECK(percent_text(0.125) == "12.5 %");
}

}  // namespace slackline::report
