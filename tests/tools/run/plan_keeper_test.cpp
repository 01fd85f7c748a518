#include "tools/run/plan_keeper.h"

#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

std::pair<std::int64_t, std::int64_t> measured(std::int64_t first_step,
                                               std::int64_t warm_up,
                                               const std::vector<std::int64_t>& plans_from) {
  PlanHistory plans;
  for (const std::int64_t from_step : plans_from) {
    plans.push_back({.from_step = from_step});
  }
  const std::optional<MeasuredSteps> steps = first_measured_steps(first_step, warm_up, plans);
  return steps ? std::pair(steps->first, steps->last) : std::pair<std::int64_t, std::int64_t>();
}

}  // namespace

TEST_CASE("a process measures two steps for its first plan, and some under that for the next") {
  using Steps = std::pair<std::int64_t, std::int64_t>;
  CHECK(measured(1, 0, {1}) == Steps{1, 2});
  CHECK(measured(1, 10, {1, 11}) == Steps{11, 12});
  CHECK(measured(4, 0, {1, 3}) == Steps{5, 8});  // resumed behind the first choice
  CHECK(measured(7, 0, {1, 3}) == Steps{8, 11});
  CHECK(measured(8, 0, {1, 3}) == Steps{});
  // A guard's plan was still to come when the checkpoint was made.
  CHECK(measured(7, 0, {1, 3, 9}) == Steps{10, 13});
  // Resumed on other stages at step 501, where the first choice was made anew.
  CHECK(measured(501, 0, {1}) == Steps{501, 502});
  CHECK(measured(506, 0, {1, 503}) == Steps{507, 510});
  CHECK(measured(508, 0, {1, 503}) == Steps{});
}

TEST_CASE("steps that are measured to be told are of one plan") {
  using Steps = std::pair<std::int64_t, std::int64_t>;
  const auto told = [](std::int64_t first_step,
                       const std::vector<std::int64_t>& plans_from,
                       std::int64_t last_step = 100) {
    PlanHistory plans;
    for (const std::int64_t from_step : plans_from) {
      plans.push_back({.from_step = from_step});
    }
    const MeasuredSteps steps = told_steps(first_step, last_step, plans);
    return Steps(steps.first, steps.last);
  };
  CHECK(told(1, {}) == Steps{2, 6});
  CHECK(told(1, {1}) == Steps{2, 6});
  // Behind warm-up steps, as long as codecs would begin among those that are measured.
  CHECK(told(1, {1, 2}) == Steps{3, 7});
  CHECK(told(1, {1, 6}) == Steps{7, 11});
  CHECK(told(1, {1, 7}) == Steps{2, 6});
  CHECK(told(1, {1, 4, 8}) == Steps{9, 13});
  CHECK(told(6, {1, 6}) == Steps{7, 11});
  CHECK(told(20, {1, 6}) == Steps{21, 25});
  // A run that ends before there are enough of the later plan tells of what it has.
  CHECK(told(1, {1, 4}, 9) == Steps{5, 9});
  CHECK(told(1, {1, 4}, 8) == Steps{2, 6});
}

}  // namespace slackline
