#include "parallel/plan/sampled_steps.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

PlanHistory plans_from(const std::vector<std::int64_t>& steps) {
  PlanHistory plans;
  for (const std::int64_t step : steps) {
    plans.push_back({.from_step = step});
  }
  return plans;
}

std::vector<std::int64_t> sampled(const SampledSteps& rule, const PlanHistory& plans) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= 25; ++step) {
    if (is_sampled(rule, plans, step)) {
      steps.push_back(step);
    }
  }
  return steps;
}

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("every so many steps are sampled, and for a guard each plan once it has settled") {
  const PlanHistory plans = plans_from({1, 9, 15});
  CHECK(sampled({.every = 10}, plans) == Steps{10, 20});
  CHECK(sampled({.every = 10, .after_change = true}, plans) == Steps{4, 10, 12, 18, 20});
}

TEST_CASE("a plan that ends before it has settled is sampled by its successor's steps alone") {
  CHECK(sampled({.every = 100, .after_change = true}, plans_from({1, 9, 11})) == Steps{4, 14});
}

TEST_CASE("nothing is sampled where sampling is off, and where nothing is ever compressed") {
  CHECK(sampled({.every = 0, .after_change = true}, plans_from({1})).empty());
  CHECK(sampled({.every = 1, .after_change = true}, {}).empty());
}

}  // namespace slackline
