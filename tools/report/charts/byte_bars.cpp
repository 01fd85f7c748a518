#include "tools/report/charts/byte_bars.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/report/charts/chart_frame.h"
#include "tools/report/charts/units.h"

namespace slackline::report {

Html byte_bars(std::string_view caption, const std::vector<ByteBar>& bars) {
  constexpr double kWidth = 420;
  constexpr double kLeft = 104;
  constexpr double kRight = 70;  // numbers
  constexpr double kRow = 20;
  constexpr double kTop = 6;
  constexpr double kBar = 14;
  double most = 0.0;
  for (const ByteBar& bar : bars) {
    most = std::max(most, bar.bytes);
  }
  const Scale x{.high = std::max(most, 1.0), .from = kLeft, .to = kWidth - kRight};
  Html content;
  double top = kTop;
  for (const ByteBar& bar : bars) {
    const char* style = bar.kind == ByteBar::Kind::raw ? "raw c7" : "sent c0";
    const double end = x(bar.bytes);
    content +=
        svg_text(kLeft - 6, top + kBar - 3, {{"class", "lane"}, {"text-anchor", "end"}}, bar.name);
    content += element("rect",
                       {{"class", style},
                        {"x", pixels(kLeft)},
                        {"y", pixels(top)},
                        {"width", pixels(end - kLeft)},
                        {"height", pixels(kBar)}});
    content += svg_text(end + 5, top + kBar - 3, {{"class", "value"}}, bytes_text(bar.bytes));
    top += kRow;
  }
  return figure("bytes", caption, svg(kWidth, top, caption, content));
}

}  // namespace slackline::report
