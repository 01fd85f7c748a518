#pragma once

#include <string>
#include <vector>

#include "parallel/predict/timeline/slack.h"
#include "parallel/predict/timeline/timeline.h"
#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// A bar chart, one row of `width` characters per rank over the whole step, and below it each rank's
// compute, bubble, exposed transfers and update. An op is drawn as its letter and micro-batch and
// then `-` (forward), `=` (backward) or `~` (weight part) to its end, idle time as dots.
[[nodiscard]] std::string timeline_text(const Schedule& schedule,
                                        const Timeline& timeline,
                                        int width);

// One row per class: number of transfers, bytes, mean time, least slack.
[[nodiscard]] std::string slack_text(const std::vector<ClassSlack>& rows);

}  // namespace slackline::schedule
