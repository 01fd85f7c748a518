#include "tests/equivalence/distance.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "core/check.h"

namespace slackline::testing {

namespace {

// The larger one; NaN where either is.
double worse(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

double largest_relative(const std::vector<double>& actual, const std::vector<double>& expected) {
  SL_CHECK_EQ(actual.size(), expected.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    largest = worse(std::abs(actual[i] - expected[i]) / std::abs(expected[i]), largest);
  }
  return largest;
}

struct Squares {
  double difference = 0.0;
  double expected = 0.0;

  void add(const std::vector<float>& a, const std::vector<float>& b) {
    SL_CHECK_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double gap = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      difference += gap * gap;
      expected += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
  }

  [[nodiscard]] double relative() const { return std::sqrt(difference / expected); }
};

}  // namespace

Distance distance(const MeshRunResult& actual, const MeshRunResult& expected) {
  const double evaluation = largest_relative({actual.evaluation}, {expected.evaluation});
  Distance result{.loss = worse(largest_relative(actual.losses, expected.losses), evaluation),
                  .norm = largest_relative(actual.norms, expected.norms)};
  for (const auto& [name, gradient] : expected.gradients) {
    Squares squares;
    squares.add(actual.gradients.at(name), gradient);
    result.gradient = worse(squares.relative(), result.gradient);
  }
  for (const auto& [name, weights] : expected.weights) {
    const std::vector<float>& others = actual.weights.at(name);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double gap = std::abs(static_cast<double>(others[i]) - static_cast<double>(weights[i]));
      result.weight = worse(gap / kLearningRate, result.weight);
    }
  }
  return result;
}

double gradient_distance(const MeshRunResult& actual, const MeshRunResult& expected) {
  Squares squares;
  for (const auto& [name, gradient] : expected.gradients) {
    squares.add(actual.gradients.at(name), gradient);
  }
  return squares.relative();
}

Mismatch beyond(const Distance& measured, const Distance& bounds) {
  std::string text;
  const auto check = [&text](const char* what, double is, double allowed) {
    if (!(is <= allowed)) {
      text += fmt::format("{} is off by {:.3g}; allowed {:.3g}\n", what, is, allowed);
    }
  };
  check("loss", measured.loss, bounds.loss);
  check("gradient norm", measured.norm, bounds.norm);
  check("a gradient", measured.gradient, bounds.gradient);
  check("a weight", measured.weight, bounds.weight);
  return {text};
}

Mismatch tensor_differences(const std::string& what,
                            const LogicalTensors& actual,
                            const LogicalTensors& all_expected) {
  std::string text;
  for (const auto& [name, expected] : all_expected) {
    const std::vector<float>& values = actual.at(name);
    if (std::memcmp(values.data(), expected.data(), expected.size() * sizeof(float)) != 0) {
      text += fmt::format("{} of {} differs\n", what, name);
    }
  }
  return {text};
}

Mismatch bit_differences(const MeshRunResult& actual, const MeshRunResult& expected) {
  std::string text;
  const auto check = [&text](const char* what, double is, double expected_value) {
    if (std::bit_cast<std::uint64_t>(is) != std::bit_cast<std::uint64_t>(expected_value)) {
      text += fmt::format("{} is {}, not {}\n", what, is, expected_value);
    }
  };
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    check("loss", actual.losses[i], expected.losses[i]);
    check("gradient norm", actual.norms[i], expected.norms[i]);
  }
  check("evaluation", actual.evaluation, expected.evaluation);
  text += tensor_differences("gradient", actual.gradients, expected.gradients).report;
  text += tensor_differences("weight", actual.weights, expected.weights).report;
  return {text};
}

}  // namespace slackline::testing
