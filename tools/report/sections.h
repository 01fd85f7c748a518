#pragma once

#include <vector>

#include "tools/report/charts/html.h"
#include "tools/report/run_record.h"
#include "tools/report/sweep_record.h"

// The parts of a report, each a heading with what belongs to it.
namespace slackline::report {

[[nodiscard]] Html facts_section(const RunRecord& run);      // model, layout, how far it got
[[nodiscard]] Html data_section(const RunRecord& run);       // training data, where data.json is
[[nodiscard]] Html loss_section(const RunRecord& run);       // and the norm of gradients
[[nodiscard]] Html step_time_section(const RunRecord& run);  // compute, bubble, exposed, other
[[nodiscard]] Html rounds_section(const RunRecord& run);     // outer rounds, where a run has them
[[nodiscard]] Html timeline_section(const RunRecord& run);   // predicted above measured
[[nodiscard]] Html bytes_section(const RunRecord& run);      // raw and sent; classes of the plan

// The losses of several runs in one chart.
[[nodiscard]] Html comparison_section(const std::vector<RunRecord>& runs);

// Tables of a sweep, speed against loss, and the losses of its runs.
[[nodiscard]] Html sweep_section(const SweepRecord& sweep);

}  // namespace slackline::report
