#include "tools/run/plan_chooser.h"

#include <utility>

#include "tests/support/catch.h"

namespace slackline {

namespace {

std::pair<std::int64_t, std::int64_t> measured(std::int64_t first_step,
                                               std::int64_t warm_up,
                                               std::int64_t plan_from) {
  const std::optional<MeasuredSteps> steps = first_measured_steps(first_step, warm_up, plan_from);
  return steps ? std::pair(steps->first, steps->last) : std::pair<std::int64_t, std::int64_t>();
}

}  // namespace

TEST_CASE("a process measures two steps for its first plan, and some under that for the next") {
  using Steps = std::pair<std::int64_t, std::int64_t>;
  CHECK(measured(1, 0, 1) == Steps{1, 2});
  CHECK(measured(1, 10, 1) == Steps{11, 12});
  CHECK(measured(4, 0, 3) == Steps{4, 7});  // resumed behind the first choice
  CHECK(measured(6, 0, 3) == Steps{6, 7});
  CHECK(measured(8, 0, 3) == Steps{});
  // A guard's plan was still to come when the checkpoint was made.
  CHECK(measured(7, 0, 9) == Steps{10, 13});
}

}  // namespace slackline
