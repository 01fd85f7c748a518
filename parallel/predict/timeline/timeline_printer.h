#pragma once

#include <string>

#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// A bar chart, one row of `width` characters per rank over the whole step, and below it each rank's
// compute, bubble, exposed transfers and update. An op is drawn as its letter and micro-batch and
// then `-` (forward), `=` (backward) or `~` (weight part) to its end, idle time as dots.
[[nodiscard]] std::string timeline_text(const Schedule& schedule,
                                        const Timeline& timeline,
                                        int width);

}  // namespace slackline::schedule
