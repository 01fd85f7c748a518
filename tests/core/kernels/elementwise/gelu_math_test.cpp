#include "core/kernels/elementwise/gelu_math.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/reference/gelu_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"

namespace slackline {

namespace {

float gelu_of(float x) {
  return simd::hn::GetLane(simd::gelu(simd::splat(x)));
}

float derivative_of(float x) {
  return simd::hn::GetLane(simd::gelu_derivative(simd::splat(x)));
}

}  // namespace

TEST_CASE("the GELU oracle's derivative agrees with finite differences") {
  for (double x = -6.0; x < 6.0; x += 0.37) {
    const auto f = [](const std::vector<double>& at) { return reference::gelu(at[0]); };
    REQUIRE(testing::worst_mismatch(testing::finite_differences(f, {x}),
                                    std::vector<double>{reference::gelu_derivative(x)},
                                    {.absolute = 1e-8}) == "");
  }
}

TEST_CASE("vector GELU is exact to 1e-6 relative where it counts, and absolutely everywhere") {
  double worst_relative = 0.0;
  double worst_absolute = 0.0;
  for (float x = -30.0F; x < 30.0F; x += 0.00037F) {
    const double expected = reference::gelu(x);
    const double error = std::abs(gelu_of(x) - expected);
    if (x > -3.0F && x != 0.0F) {
      worst_relative = std::max(worst_relative, error / std::abs(expected));
    } else if (x < 0.0F) {
      worst_absolute = std::max(worst_absolute, error);
    }
  }
  REQUIRE(worst_relative < 1e-6);
  REQUIRE(worst_absolute < 1e-8);  // gelu(-3) is 4e-3; its exponent of 7 rounds to 1e-6 of that
}

TEST_CASE("the derivative of vector GELU is exact to 1e-6") {
  double worst = 0.0;
  for (float x = -30.0F; x < 30.0F; x += 0.00037F) {
    // It is of order 1 and crosses zero near -0.75, so the error is absolute.
    worst = std::max(worst, std::abs(derivative_of(x) - reference::gelu_derivative(x)));
  }
  REQUIRE(worst < 1e-6);
}

TEST_CASE("vector GELU keeps its limits") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  REQUIRE(gelu_of(0.0F) == 0.0F);
  REQUIRE(gelu_of(kInfinity) == kInfinity);
  REQUIRE(gelu_of(1e30F) == 1e30F);
  REQUIRE(std::abs(gelu_of(-1e4F)) < 1e-30F);
  REQUIRE(derivative_of(0.0F) == 0.5F);
  REQUIRE(derivative_of(1e4F) == 1.0F);
  REQUIRE(std::abs(derivative_of(-1e4F)) < 1e-20F);
  REQUIRE(std::isnan(gelu_of(std::nanf(""))));
  REQUIRE(std::isnan(derivative_of(std::nanf(""))));
}

}  // namespace slackline
