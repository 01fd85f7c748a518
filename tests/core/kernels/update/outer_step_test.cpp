#include "core/kernels/update/outer_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Case {
  explicit Case(std::int64_t size)
      : difference(random_tensor(DType::f32, {size}, {.seed = 1, .deviation = 1e-2})),
        momentum(random_tensor(DType::f32, {size}, {.seed = 2, .deviation = 1e-2})),
        anchor(random_tensor(DType::f32, {size}, {.seed = 3})),
        weight(random_tensor(DType::f32, {size}, {.seed = 4})) {}

  [[nodiscard]] OuterTensors tensors() {
    return {.difference = difference, .momentum = momentum, .anchor = anchor, .weight = weight};
  }

  [[nodiscard]] bool sentinels_intact() const {
    return difference.sentinels_intact() && momentum.sentinels_intact() &&
           anchor.sentinels_intact() && weight.sentinels_intact();
  }

  GuardedTensor difference, momentum, anchor, weight;
};

// The same in double, term by term as the header says it.
struct Expected {
  explicit Expected(const Case& test)
      : difference(test.difference.values()),
        momentum(test.momentum.values()),
        anchor(test.anchor.values()),
        weight(test.weight.values()) {}

  void step(const OuterStep& by) {
    for (std::size_t i = 0; i < anchor.size(); ++i) {
      const double learned = by.scale * difference[i];
      const double made = by.shrink * (by.momentum * momentum[i] + learned);
      const double m = std::clamp(made, -by.clip, by.clip);
      const double a = anchor[i] - by.lr * (by.nesterov ? learned + by.momentum * m : m);
      if (by.writes == OuterWrites::step_and_difference) {
        difference[i] = anchor[i] - weight[i];
      } else if (by.writes == OuterWrites::step_and_old_anchor) {
        difference[i] = anchor[i];
      }
      weight[i] = a;
      if (by.writes != OuterWrites::weight) {
        momentum[i] = m;
        anchor[i] = a;
      }
    }
  }

  std::vector<double> difference, momentum, anchor, weight;
};

}  // namespace

TEST_CASE("an outer step follows the oracle, in all its forms") {
  Stream stream(test_stream(2));
  for (const std::int64_t size : {0, 1, 17, 70001}) {
    for (const bool nesterov : {false, true}) {
      for (const OuterWrites writes : {OuterWrites::step,
                                       OuterWrites::step_and_difference,
                                       OuterWrites::step_and_old_anchor,
                                       OuterWrites::weight}) {
        for (const auto& [clip, shrink] : {std::pair{1e-2, 1.0},
                                           {std::numeric_limits<double>::infinity(), 1.0},
                                           {std::numeric_limits<double>::infinity(), 0.3}}) {
          const OuterStep step{.lr = 0.7,
                               .momentum = 0.9,
                               .scale = 0.25,
                               .shrink = shrink,
                               .clip = clip,
                               .nesterov = nesterov,
                               .writes = writes};
          Case test(size);
          Expected expected(test);
          for (int i = 0; i < 2; ++i) {
            outer_step(stream, test.tensors(), step);
            expected.step(step);
          }
          // A handful of roundings of 6e-8 of numbers up to 4.
          const Tolerance bound{1e-6, 1e-6};
          REQUIRE(worst_mismatch(test.momentum.values(), expected.momentum, bound) == "");
          REQUIRE(worst_mismatch(test.anchor.values(), expected.anchor, bound) == "");
          REQUIRE(worst_mismatch(test.difference.values(), expected.difference, bound) == "");
          REQUIRE(worst_mismatch(test.weight.values(), expected.weight, bound) == "");
          REQUIRE((size == 0 || writes == OuterWrites::weight) ==
                  (size == 0 || test.weight.bytes() != test.anchor.bytes()));
          REQUIRE(test.sentinels_intact());
        }
      }
    }
  }
}

TEST_CASE("where a step would lead has the bits of the step") {
  Stream stream(test_stream(2));
  Case test(70001);
  const OuterStep step{.lr = 0.7, .momentum = 0.9, .scale = 0.25, .clip = 1e-2};
  OuterStep only_weight = step;
  only_weight.writes = OuterWrites::weight;
  outer_step(stream, test.tensors(), only_weight);
  const auto led_to = test.weight.bytes();
  outer_step(stream, test.tensors(), step);
  REQUIRE(test.anchor.bytes() == led_to);
  REQUIRE(test.weight.bytes() == led_to);
}

TEST_CASE("an outer step that limits nothing lets what is not finite show") {
  Stream stream(test_stream(1));
  Case test(3);
  test.difference.set(std::vector<double>{1.0, std::nan(""), 1.0});
  outer_step(stream, test.tensors(), {.clip = 0.5});
  const std::vector<double> anchor = test.anchor.values();
  REQUIRE(std::isfinite(anchor[0]));
  REQUIRE(std::isnan(anchor[1]));
}

// A mode that one round shrinks by 1 - rho, with a difference that is one round late: stable where
// lr rho / penalty is below 1 - momentum (docs/outer.md, "What is stable").
TEST_CASE("late outer steps are stable on a quadratic exactly where the rule says", "[launches]") {
  Stream stream(test_stream(1));
  for (const auto& [momentum, nesterov] : {std::pair{0.0, false},
                                           {0.2, false},
                                           {0.5, false},
                                           {0.9, false},
                                           {0.2, true},
                                           {0.5, true},
                                           {0.9, true}}) {
    const double half = 0.5 * (1.0 - momentum * momentum);
    const double square = momentum * momentum;
    const double bound = nesterov
                             ? (std::sqrt(half * half + square * (1.0 - momentum)) - half) / square
                             : 1.0 - momentum;
    for (const double rho : {0.5, 1.0}) {
      for (const double side : {0.98, 1.02}) {
        Case test(1);
        test.anchor.fill(1.0);
        test.momentum.fill(0.0);
        test.difference.fill(0.0);  // the first late round
        const OuterStep step{.lr = side * bound / rho,
                             .momentum = momentum,
                             .nesterov = nesterov,
                             .writes = OuterWrites::step_and_difference};
        double early = 0.0;
        double late = 0.0;
        for (int round = 0; round < 2000; ++round) {
          // The worker's end point; what it sends arrives a round later.
          test.weight.set(std::vector<double>{(1.0 - rho) * test.anchor.values()[0]});
          outer_step(stream, test.tensors(), step);
          const double size = std::abs(test.anchor.values()[0]);
          early = round < 100 ? std::max(early, size) : early;
          late = round >= 1900 ? std::max(late, size) : late;
        }
        INFO("momentum " << momentum << (nesterov ? " of Nesterov's" : "") << ", rho " << rho
                         << ", at " << side << " of the bound");
        CHECK((late < early) == (side < 1.0));
      }
    }
  }
}

TEST_CASE("tensors that change places have each other's bits") {
  Stream stream(test_stream(2));
  Case test(70001);
  const auto weight = test.weight.bytes();
  const auto anchor = test.anchor.bytes();
  exchange(stream, test.weight, test.anchor);
  REQUIRE(test.weight.bytes() == anchor);
  REQUIRE(test.anchor.bytes() == weight);
  REQUIRE(test.sentinels_intact());
}

}  // namespace slackline::testing
