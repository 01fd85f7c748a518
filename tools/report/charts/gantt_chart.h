#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/report/charts/html.h"
#include "tools/report/charts/step_bars.h"

namespace slackline::report {

// Shows what happens when, a lane below the other: the bars of the ranks with an entry in `names`,
// where a rank's first lane has its name. Critical bars have an outline, compressed ones are
// hatched (with the pattern of chart_patterns, which must stand once on the page). `kind` is a
// class of the figure. REQUIRES: the step's seconds are > 0 and finite.
[[nodiscard]] Html gantt_chart(const StepBars& step,
                               const std::vector<std::string>& names,
                               const std::string& kind,
                               std::string_view caption);

[[nodiscard]] Html chart_patterns();

}  // namespace slackline::report
