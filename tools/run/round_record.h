#pragma once

#include "parallel/step/outer_loop.h"
#include "tools/record/metrics.h"

namespace slackline {

// What a line of metrics.jsonl has of the end of an outer round.
[[nodiscard]] inline RoundRecord round_record(const RoundEnd& end) {
  return {.worker_losses = end.losses,
          .penalty = end.penalty,
          .distance = end.distance,
          .period = end.period,
          .left_out = !end.not_finite.empty(),
          .clipped = end.clipped};
}

}  // namespace slackline
