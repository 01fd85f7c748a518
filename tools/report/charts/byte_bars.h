#pragma once

#include <string>
#include <vector>

#include "tools/report/charts/html.h"

namespace slackline::report {

struct ByteBar {
  enum class Kind { raw, sent };

  std::string name{};
  Kind kind{};
  double bytes = 0.0;
};

// Horizontal bars, each with its number.
[[nodiscard]] Html byte_bars(std::string_view caption, const std::vector<ByteBar>& bars);

}  // namespace slackline::report
