#pragma once

#include <string>
#include <vector>

#include "parallel/predict/timeline/chrome_trace.h"

namespace slackline::report {

// Reads the bars of a trace.json, in Chrome's format as a run writes it, back. Throws FileError.
[[nodiscard]] std::vector<schedule::TraceBar> read_trace(const std::string& path);

}  // namespace slackline::report
