#pragma once

#include "parallel/schedule/ops.h"
#include "parallel/schedule/unit.h"

// Closed forms for a pipeline of equal chunks whose transfers take no time; docs/schedule.md says
// where they come from.
namespace slackline::schedule {

// What one rank computes for one micro-batch, all its chunks together.
struct RankCosts {
  Seconds forward{};
  Seconds backward_input{};
  Seconds backward_weight{};
};

// Time each rank idles in a step. GPipe and 1F1B: (p-1)(F + B); interleaved: that / v; ZB-H1:
// (p-1)(F + B_input - W). REQUIRES: ZB-H1: m >= p, W <= B_input <= F + W; the others: any m.
[[nodiscard]] Seconds bubble_seconds(Kind kind, int num_ranks, int num_chunks, RankCosts costs);

// Its share of the step: (p-1) / (m + p - 1) for GPipe and 1F1B.
[[nodiscard]] double bubble_share(
    Kind kind, int num_ranks, int num_chunks, int num_micro_batches, RankCosts costs);

}  // namespace slackline::schedule
