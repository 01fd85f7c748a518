#pragma once

#include "parallel/schedule/ops.h"
#include "parallel/schedule/unit.h"

// Closed forms; docs/schedule.md says where they come from. Those of times are for a pipeline of
// equal chunks whose transfers take no time.
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

// The most micro-batches, counted per chunk, whose activations `rank` may hold at once: all m of
// them for GPipe, min(p - rank, m) for 1F1B, min(p, m) for ZB-H1; one more than the warm-up's for
// interleaved.
[[nodiscard]] int in_flight_bound(const Schedule& schedule, int rank);

}  // namespace slackline::schedule
