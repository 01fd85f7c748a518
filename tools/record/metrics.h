#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/compression_quality.h"
#include "parallel/plan/step_waits.h"

namespace slackline {

// How a step was spent, as means over ranks. Compute, bubble and exposed are measured, each by
// itself; `other` is what they leave of the step.
struct StepSeconds {
  double compute = 0.0;  // passes, gradient norm and update, without the waits in them
  double bubble = 0.0;   // waiting for a transfer that not all of its ranks had submitted
  double exposed = 0.0;  // waiting for one that they had
  double other = 0.0;    // the rest: reading data, and what the host does between passes
};

struct AxisTraffic {
  // Summed over ranks, before compression. Not measured: sent_bytes and what the formulas of the
  // codecs in force say that they kept off the axis (saved_axis_bytes).
  double raw_bytes = 0.0;
  double sent_bytes = 0.0;  // as the communicators counted them; summed over ranks
  // Those of `sent_bytes` that went to another group of data ranks; absent with one group.
  std::optional<double> across_bytes{};
  double exposed_seconds = 0.0;
};

// How the outer round that an end uses has travelled, by the first worker's slowest rank.
struct TravelRecord {
  std::int64_t sent_step = 0;   // with whose end it was sent
  double round_seconds = 0.0;   // from sending to arrival
  double period_seconds = 0.0;  // from sending until the end that uses it began; 0: its own
  double wait_seconds = 0.0;    // of the end, and of saves before it, for rounds
};

// What the step that ends an outer round adds.
struct RoundRecord {
  std::vector<double> worker_losses{};
  double penalty = 1.0;  // what a late difference was divided by
  // RMS of workers' weights from their mean, as they were last sent; NaN: not known.
  double distance = 0.0;
  std::int64_t period = 0;          // steps of the round that begins
  bool left_out = false;            // the round, since it was not finite
  std::optional<double> clipped{};  // share of the momentum that outer.clip holds; absent: none
  std::optional<TravelRecord> travel{};  // absent where no round was to arrive
};

// The rank that computed longest in a step, of those whose step it is.
struct SlowestRank {
  int rank = 0;
  std::string host{};
  double compute_seconds = 0.0;
};

// What one step leaves behind; the fields of a step line of metrics.jsonl.
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0.0;       // mean over the global batch's tokens, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  std::int64_t tokens = 0;
  double step_seconds = 0.0;
  StepSeconds seconds{};  // add up to step_seconds
  SlowestRank slowest{};
  double time = 0.0;                                     // Unix seconds, when its line was written
  std::array<AxisTraffic, kReportedAxes.size()> axes{};  // as kReportedAxes
  std::vector<ClassQuality> compression{};               // of steps whose messages were sampled
  bool has_workers = false;  // trains in outer rounds: loss and seconds are the first worker's
  std::optional<RoundRecord> round{};  // that ends with the step
  bool skipped = false;                // not finite, and run.on_nonfinite says skip
  bool rehearsed = false;  // on the rehearsal device: without loss and norm, which are NaN
};

// One line of metrics.jsonl, without the newline. Numbers that are not finite become null.
[[nodiscard]] std::string step_line(const StepRecord& record);
[[nodiscard]] std::string evaluation_line(std::int64_t step, double loss, double time);

struct ConsoleContext {
  std::int64_t steps = 0;              // of the run
  double flops_per_token = 0.0;        // Megatron's causal formula
  std::optional<double> peak_flops{};  // of all devices of the run; 0: unknown; absent: not on any
  double seconds_per_step = 0.0;       // recent mean, for the time left
};

// One line for a person: step, loss, norm, lr, speed, time left.
[[nodiscard]] std::string console_line(const StepRecord& record, const ConsoleContext& context);

// "3m12s", "1h04m", "2d03h"
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace slackline
