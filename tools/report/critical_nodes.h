#pragma once

#include <vector>

#include "parallel/predict/timeline/timeline.h"

namespace slackline::report {

// Which nodes of a timeline have no slack: were one later, so would be the step.
[[nodiscard]] std::vector<bool> critical_nodes(const schedule::Timeline& timeline);

}  // namespace slackline::report
