#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace slackline {

// What a run's metrics.jsonl says, by quantity ("loss", "grad_norm", "eval_loss") and step.
// A value that was not finite (null in the file) is NaN.
using MetricCurves = std::map<std::string, std::map<std::int64_t, double>>;

// Reads RUN_DIRECTORY/metrics.jsonl. A last line that a crash cut short does not count.
// Throws FileError naming another line that is not one of metrics.
[[nodiscard]] MetricCurves read_metric_curves(const std::string& run_directory);

struct Difference {
  std::int64_t step = 0;
  double a = 0.0;
  double b = 0.0;
  double relative = 0.0;  // |a - b| / max(|a|, |b|); infinite when one of two is not finite
};

// One quantity over the steps that both runs have.
struct CurveComparison {
  std::string quantity{};
  std::size_t num_common = 0;
  std::size_t num_not_finite = 0;  // of the common steps: in both runs
  std::size_t num_only_a = 0;
  std::size_t num_only_b = 0;
  std::optional<Difference> first{};    // of any size
  std::optional<Difference> largest{};  // the first of equals

  [[nodiscard]] double largest_relative() const { return largest ? largest->relative : 0.0; }
};

// Pure. Every quantity that either run has, in name order.
[[nodiscard]] std::vector<CurveComparison> compare_curves(MetricCurves a, MetricCurves b);

}  // namespace slackline
