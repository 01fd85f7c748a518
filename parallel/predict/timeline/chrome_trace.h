#pragma once

#include <string>
#include <vector>

#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/ops.h"
#include "parallel/schedule/unit.h"

namespace slackline::schedule {

// One bar of a trace, predicted or measured.
struct TraceBar {
  int rank{};
  std::string track{};  // a row under the rank: "compute", an axis, "waiting"
  std::string name{};
  Seconds start{};
  Seconds duration{};
};

// Chrome's trace format (JSON), for chrome://tracing and Perfetto: a process per rank, a thread per
// track in the order in which tracks first appear, times in microseconds.
[[nodiscard]] std::string chrome_trace(const std::vector<TraceBar>& bars);

// Reads the bars of such a file back, as a run writes it. Throws FileError.
[[nodiscard]] std::vector<TraceBar> read_trace(const std::string& path);

// The bars of a timeline: compute, the transfers that a rank sends by site, and its waiting.
[[nodiscard]] std::vector<TraceBar> trace_bars(const Schedule& schedule, const Timeline& timeline);

}  // namespace slackline::schedule
