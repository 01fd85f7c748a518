#include "tests/parallel/schedule/formulas.h"

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

}  // namespace slackline::schedule
