#pragma once

#include <cstdint>
#include <string>

namespace slackline {

// What one step leaves behind; the fields of a step line of metrics.jsonl (CONTRACTS section 4).
struct StepRecord {
  std::int64_t step = 0;
  double loss = 0.0;       // mean over the global batch's tokens, before the update
  double grad_norm = 0.0;  // before clipping
  double lr = 0.0;
  std::int64_t tokens = 0;
  double step_seconds = 0.0;
  double compute_seconds = 0.0;  // forward, backward, norm and update; the rest is "other"
  bool skipped = false;          // not finite, and run.on_nonfinite says skip
};

// One line of metrics.jsonl, without the newline. Numbers that are not finite become null.
[[nodiscard]] std::string step_line(const StepRecord& record);
[[nodiscard]] std::string evaluation_line(std::int64_t step, double loss);

struct ConsoleContext {
  std::int64_t steps = 0;         // of the run
  double flops_per_token = 0.0;   // Megatron's causal formula
  double seconds_per_step = 0.0;  // recent mean, for the time left
};

// One line for a person: step, loss, norm, lr, speed, time left.
[[nodiscard]] std::string console_line(const StepRecord& record, const ConsoleContext& context);

// "3m12s", "1h04m", "2d03h"
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace slackline
