// GPipe: all forward passes, then all backward passes. Every micro-batch is in flight at once;
// Huang et al., "GPipe", section 2.3. Backward passes run in ascending order like everywhere else
// (the paper's run in descending order), so that sums over micro-batches keep one order.

#include "parallel/schedule/schedule_traits.h"

namespace slackline::schedule {

namespace {

ComputeOrder compute_order(const ScheduleOptions& options, int rank) {
  ComputeOrder order;
  for (const OpKind kind : {OpKind::forward, OpKind::backward}) {
    for (int k = 0; k < options.num_micro_batches; ++k) {
      order.push_back({kind, rank, k});
    }
  }
  return order;
}

}  // namespace

extern const ScheduleTraits kGpipeTraits;
constexpr ScheduleTraits kGpipeTraits = {.name = "gpipe", .compute_order = compute_order};

}  // namespace slackline::schedule
