#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/report/run_record.h"
#include "tools/report/sweep_record.h"

namespace slackline::report {

// How every report begins, so that one can be told from other files.
inline constexpr std::string_view kPageStart = "<!doctype html>\n<!-- slackline report -->\n";

// The whole HTML file: one document that asks for nothing else and runs no script. A function of
// its arguments, without dates.
[[nodiscard]] std::string page(const std::vector<RunRecord>& runs,
                               const std::vector<SweepRecord>& sweeps);

}  // namespace slackline::report
