#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "tools/record/metrics_file.h"

namespace slackline {

// What a run's metrics.jsonl comes down to. Numbers that the run did not get to, or that were not
// finite, are absent.
struct RunSummary {
  std::int64_t steps = 0;            // done; of a run that stopped on a loss that is not finite,
                                     // the step it stopped at
  std::int64_t first_step = 0;       // of the record
  std::optional<std::string> gap{};  // where the record jumps, which no run writes; absent: nowhere
  std::optional<double> loss{};      // of the last step
  std::optional<double> eval_loss{};          // the last one
  std::optional<double> step_seconds{};       // these and what follows are means over the second
  std::optional<double> tokens_per_second{};  // half of the steps: caches are warm, and a plan that
  std::optional<double> exposed_seconds{};    // is made during the run is in force
  std::array<AxisTraffic, kReportedAxes.size()> axes{};  // as kReportedAxes
};

[[nodiscard]] RunSummary summary_of(const report::Metrics& metrics);

// A run without metrics.jsonl has zero steps. A last line that a crash cut short does not count.
// Throws FileError naming the line that is not one of metrics.
[[nodiscard]] RunSummary summarize_run(const std::string& run_directory);

// The newest step in metrics.jsonl, 0 without one. Reads the end of the file alone.
[[nodiscard]] std::int64_t newest_step(const std::string& run_directory);

}  // namespace slackline
