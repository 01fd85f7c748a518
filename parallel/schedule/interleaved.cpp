// Interleaved 1F1B: a rank holds v chunks, p virtual stages apart, and takes its forward passes in
// groups of p micro-batches: chunk by chunk p micro-batches each, then the next group. Backward
// passes go the same way from the last chunk to the first. A bubble lasts 1 / v of plain 1F1B's,
// for v times the transfers. Narayanan et al., "Efficient Large-Scale Language Model Training on
// GPU Clusters", section 2.2.
//
// Pass n of a rank is the n-th of its m v passes in that order. After `warmup` forward passes,
// forward pass n is followed by backward pass n - warmup.

#include <algorithm>

#include "parallel/schedule/schedule_traits.h"

namespace slackline::schedule {

namespace {

// Which chunk of the rank (0 .. v-1 in the order of the direction) and micro-batch pass n is.
struct Pass {
  int chunk{};
  int micro_batch{};
};

Pass pass_at(const ScheduleOptions& options, int n) {
  const int p = options.num_ranks;
  const int group = n / (p * options.num_chunks);
  const int in_group = n % (p * options.num_chunks);
  return {in_group / p, group * p + in_group % p};
}

}  // namespace

// A rank one stage further from the end starts two passes earlier, one for the forward and one for
// the backward transfer between them; each chunk but one adds a whole group.
int interleaved_warmup(const ScheduleOptions& options, int rank) {
  const int p = options.num_ranks;
  const int v = options.num_chunks;
  return std::min(2 * (p - 1 - rank) + (v - 1) * p, options.num_micro_batches * v);
}

namespace {

ComputeOrder compute_order(const ScheduleOptions& options, int rank) {
  const int p = options.num_ranks;
  const int v = options.num_chunks;
  const int passes = options.num_micro_batches * v;
  const int warmup = interleaved_warmup(options, rank);
  ComputeOrder order;
  for (int n = 0; n < passes + warmup; ++n) {
    if (n < passes) {
      const Pass pass = pass_at(options, n);
      order.push_back({OpKind::forward, pass.chunk * p + rank, pass.micro_batch});
    }
    if (n >= warmup) {
      const Pass pass = pass_at(options, n - warmup);
      order.push_back({OpKind::backward, (v - 1 - pass.chunk) * p + rank, pass.micro_batch});
    }
  }
  return order;
}

}  // namespace

extern const ScheduleTraits kInterleavedTraits;
constexpr ScheduleTraits kInterleavedTraits = {.name = "interleaved",
                                               .compute_order = compute_order};

}  // namespace slackline::schedule
