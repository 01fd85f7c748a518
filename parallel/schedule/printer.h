#pragma once

#include <string>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

// An op in a few letters: F forward, B backward, I and W its input and weight parts, then the
// micro-batch. A virtual stage beyond the first of its rank follows after a dot (F3.1: the rank's
// second chunk). Transfers: rF and rB are receives, sF and sB sends; "wait" stands for itself.
[[nodiscard]] std::string op_text(const Schedule& schedule, const Op& op);

enum class ShownOps { compute, all };

// One row per rank, all ops of one width.
[[nodiscard]] std::string schedule_text(const Schedule& schedule, ShownOps shown);

}  // namespace slackline::schedule
