#include "tools/report/run_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

constexpr std::array<std::string_view, 3> kQuantities = {"loss", "grad_norm", "eval_loss"};

void read_line(const nlohmann::ordered_json& line, MetricCurves& curves) {
  const auto step = line.at("step").get<std::int64_t>();
  for (const std::string_view quantity : kQuantities) {
    const auto found = line.find(quantity);
    if (found == line.end()) {
      continue;
    }
    curves[std::string(quantity)][step] =
        found->is_null() ? std::numeric_limits<double>::quiet_NaN() : found->get<double>();
  }
}

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
  const std::string path = run_directory + "/metrics.jsonl";
  const std::string text = read_file(path);
  MetricCurves curves;
  std::size_t number = 0;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++number;
    try {
      read_line(parse_strict_json(std::string_view(text).substr(begin, end - begin)), curves);
    } catch (const std::exception& error) {
      throw FileError(
          fmt::format("{}: line {} is no line of metrics: {}", path, number, error.what()));
    }
  }
  return curves;
}

std::vector<CurveComparison> compare_curves(const MetricCurves& a, const MetricCurves& b) {
  MetricCurves both = a;
  both.insert(b.begin(), b.end());
  const auto curve_of = [](const MetricCurves& curves, const std::string& quantity) {
    const auto found = curves.find(quantity);
    return found == curves.end() ? std::map<std::int64_t, double>{} : found->second;
  };
  std::vector<CurveComparison> result;
  for (const auto& [quantity, unused] : both) {
    result.push_back(compare_curve(curve_of(a, quantity), curve_of(b, quantity)));
    result.back().quantity = quantity;
  }
  return result;
}

}  // namespace slackline
