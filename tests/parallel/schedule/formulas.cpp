#include "tests/parallel/schedule/formulas.h"

#include <algorithm>

namespace slackline::schedule {

Seconds bubble_seconds(Kind kind, int num_ranks, int num_chunks, RankCosts costs) {
  const double others = num_ranks - 1;
  if (kind == Kind::zb_h1) {
    return others * (costs.forward + costs.backward_input - costs.backward_weight);
  }
  return (others / num_chunks) * (costs.forward + costs.backward_input + costs.backward_weight);
}

double bubble_share(
    Kind kind, int num_ranks, int num_chunks, int num_micro_batches, RankCosts costs) {
  const Seconds bubble = bubble_seconds(kind, num_ranks, num_chunks, costs);
  const Seconds work = static_cast<double>(num_micro_batches) *
                       (costs.forward + costs.backward_input + costs.backward_weight);
  return bubble / (bubble + work);
}

int in_flight_bound(const Schedule& schedule, int rank) {
  const int p = schedule.num_ranks;
  const int v = schedule.num_chunks;
  const int m = schedule.num_micro_batches;
  switch (schedule.kind) {
    case Kind::gpipe:
      return m;
    case Kind::one_f_one_b:
      return std::min(p - rank, m);
    case Kind::zb_h1:
      return std::min(p, m);
    case Kind::interleaved:
      break;
  }
  return std::min(2 * (p - 1 - rank) + (v - 1) * p + 1, m * v);
}

}  // namespace slackline::schedule
