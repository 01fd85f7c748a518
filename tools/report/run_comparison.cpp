#include "tools/report/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/record/metrics_file.h"

namespace slackline {

namespace {

double relative_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0.0;
  }
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return std::numeric_limits<double>::infinity();
  }
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

CurveComparison compare_curve(const std::map<std::int64_t, double>& a,
                              const std::map<std::int64_t, double>& b) {
  CurveComparison result;
  for (const auto& [step, value] : a) {
    const auto other = b.find(step);
    if (other == b.end()) {
      continue;
    }
    ++result.num_common;
    result.num_not_finite += !std::isfinite(value) && !std::isfinite(other->second) ? 1 : 0;
    const Difference difference{.step = step,
                                .a = value,
                                .b = other->second,
                                .relative = relative_difference(value, other->second)};
    if (difference.relative > 0.0 && !result.first) {
      result.first = difference;
    }
    if (difference.relative > result.largest_relative()) {
      result.largest = difference;
    }
  }
  result.num_only_a = a.size() - result.num_common;
  result.num_only_b = b.size() - result.num_common;
  return result;
}

}  // namespace

MetricCurves read_metric_curves(const std::string& run_directory) {
  const report::Metrics metrics = report::read_metrics(run_directory + "/metrics.jsonl");
  MetricCurves curves;
  for (const StepRecord& record : metrics.steps) {
    curves["loss"][record.step] = record.loss;
    curves["grad_norm"][record.step] = record.grad_norm;
  }
  for (const report::EvaluatedStep& evaluation : metrics.evaluations) {
    curves["eval_loss"][evaluation.step] = evaluation.loss;
  }
  return curves;
}

std::vector<CurveComparison> compare_curves(MetricCurves a, MetricCurves b) {
  MetricCurves both = a;
  both.insert(b.begin(), b.end());
  std::vector<CurveComparison> result;
  for (const auto& [quantity, unused] : both) {
    result.push_back(compare_curve(a[quantity], b[quantity]));
    result.back().quantity = quantity;
  }
  return result;
}

}  // namespace slackline
