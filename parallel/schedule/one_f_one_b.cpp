// 1F1B: after min(p - 1 - rank, m) forward passes of warm-up, one forward and one backward in turn
// (steady state), then the remaining backward passes (cool-down). Rank i holds min(p - i, m)
// micro-batches at most, whatever m is. Narayanan et al., "PipeDream", section 3.2.

#include <algorithm>

#include "parallel/schedule/schedule_traits.h"

namespace slackline::schedule {

ComputeOrder one_f_one_b_order(const ScheduleOptions& options, int rank) {
  const int m = options.num_micro_batches;
  const int warmup = std::min(options.num_ranks - 1 - rank, m);
  ComputeOrder order;
  for (int k = 0; k < m + warmup; ++k) {
    if (k < m) {
      order.push_back({OpKind::forward, rank, k});
    }
    if (k >= warmup) {
      order.push_back({OpKind::backward, rank, k - warmup});
    }
  }
  return order;
}

extern const ScheduleTraits kOneFOneBTraits;
constexpr ScheduleTraits kOneFOneBTraits = {.name = "1f1b", .compute_order = one_f_one_b_order};

}  // namespace slackline::schedule
