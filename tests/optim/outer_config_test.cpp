#include "optim/outer_config.h"

#include "tests/support/catch.h"

namespace slackline {

// That rounds are stable below and not above is shown by outer_step_test.cpp.
TEST_CASE("the largest stable rate is 1 - momentum, and another one under Nesterov's") {
  CHECK(largest_stable_rate({.momentum = 0.2}) == Approx(0.8));
  CHECK(largest_stable_rate({.momentum = 0.0, .nesterov = true}) == Approx(1.0));
  for (const double b : {0.2, 0.5, 0.9}) {
    const double a = largest_stable_rate({.momentum = b, .nesterov = true});
    CHECK(a * a * b * b + a * (1.0 - b * b) == Approx(1.0 - b));
  }
  CHECK(largest_stable_rate({.momentum = 0.9, .nesterov = true}) == Approx(0.2531).epsilon(1e-3));
}

// A start that is where the anchor will be makes the mean of workers as stable as rounds without a
// delay are; then it is what they differ in that has a bound.
TEST_CASE(
    "eager rounds bear larger rates, as long as leads do not amplify what workers differ in") {
  for (const double b : {0.0, 0.2, 0.5, 0.8, 0.9}) {
    CHECK(largest_stable_rate({.momentum = b, .eager = true, .lead = 1.0}) == Approx(1.0));
    CHECK(largest_stable_rate({.momentum = b, .nesterov = true, .eager = true, .lead = 1.0}) ==
          Approx(1.0 / (1.0 + b)));
  }
  CHECK(largest_stable_rate({.momentum = 0.8, .nesterov = true, .eager = true}) ==
        Approx(1.0 / (1.8 * 0.75)));
  CHECK(largest_stable_rate({.momentum = 0.9, .nesterov = true, .eager = true, .lead = 0.25}) <
        0.5);
}

}  // namespace slackline
