#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/record/metrics.h"

namespace slackline::report {

struct EvaluatedStep {
  std::int64_t step = 0;
  double loss = 0.0;
};

// What a metrics.jsonl says, in its order. A loss, norm or evaluation that was not finite is NaN;
// of `compression` nothing is read.
struct Metrics {
  std::vector<StepRecord> steps{};
  std::vector<EvaluatedStep> evaluations{};
  // What is wrong with the last line: cut short, as a crash leaves it. The rest was read.
  std::optional<std::string> cut{};

  // Returns the steps that have accounts: the one that ends a run on a number that is not finite
  // has none.
  [[nodiscard]] std::vector<StepRecord> timed() const;
};

// Throws FileError where the file cannot be read, or a line that is not the last is none of
// metrics.
[[nodiscard]] Metrics read_metrics(const std::string& path);

}  // namespace slackline::report
