// ZB-H1: the forward and backward passes of 1F1B with the backward split. The input gradient is
// made and sent at once; rank i keeps i weight parts back and runs them where 1F1B would idle at
// the end of the step. Every rank then holds min(p, m) micro-batches, as many as 1F1B's first rank.
// Qi et al., "Zero Bubble Pipeline Parallelism", section 2.3.

#include <algorithm>

#include "parallel/schedule/schedule_traits.h"

namespace slackline::schedule {

namespace {

ComputeOrder compute_order(const ScheduleOptions& options, int rank) {
  const int m = options.num_micro_batches;
  const int kept_back = std::min(rank, m);
  ComputeOrder order;
  for (const Op& op : one_f_one_b_order(options, rank)) {
    if (op.kind == OpKind::forward) {
      order.push_back(op);
      continue;
    }
    order.push_back({OpKind::backward_input, rank, op.micro_batch});
    if (op.micro_batch >= kept_back) {
      order.push_back({OpKind::backward_weight, rank, op.micro_batch - kept_back});
    }
  }
  for (int k = m - kept_back; k < m; ++k) {
    order.push_back({OpKind::backward_weight, rank, k});
  }
  return order;
}

}  // namespace

extern const ScheduleTraits kZbH1Traits;
constexpr ScheduleTraits kZbH1Traits = {
    .name = "zb_h1", .splits_backward = true, .compute_order = compute_order};

}  // namespace slackline::schedule
