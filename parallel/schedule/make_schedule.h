#pragma once

#include <vector>

#include "parallel/schedule/ops.h"

namespace slackline::schedule {

struct ScheduleOptions {
  int num_ranks = 1;          // p
  int num_chunks = 1;         // v; more than one for interleaved only
  int num_micro_batches = 1;  // m; interleaved: a multiple of p
  Transfers transfers = Transfers::asynchronous;
};

// What one rank computes, in order, without any transfer. Each generator's file explains its order.
using ComputeOrder = std::vector<Op>;
[[nodiscard]] ComputeOrder one_f_one_b_order(const ScheduleOptions& options, int rank);

// Forward passes that `rank` of an interleaved schedule makes before its first backward pass.
[[nodiscard]] int interleaved_warmup(const ScheduleOptions& options, int rank);

// The kind's compute order (schedule_traits.h) with its transfers. Throws std::invalid_argument, in
// a sentence, when the options do not fit the kind.
[[nodiscard]] Schedule make_schedule(Kind kind, const ScheduleOptions& options);

}  // namespace slackline::schedule
