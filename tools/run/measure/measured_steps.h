#pragma once

#include <cstdint>

namespace slackline {

// Steps of a run whose costs are measured together.
struct MeasuredSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  // A plan is chosen by the costs as soon as `last` has ended, and holds from the next step on;
  // otherwise it is chosen when `last` is reported, and holds from kStepsToChange steps after it.
  bool at_once = false;

  [[nodiscard]] bool has(std::int64_t step) const { return first <= step && step <= last; }
};

}  // namespace slackline
