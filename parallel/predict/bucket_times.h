#pragma once

#include <cstddef>
#include <vector>

#include "parallel/mesh/rank_plan.h"

namespace slackline {

// A bucket of the gradient reducer as a timeline sees it.
struct PlacedBucket {
  int stage = 0;  // the virtual stage that completes it in backward and reads it in forward
  double reduce_at = 1.0;  // fraction of that stage's last backward pass, or weight part
  double gather_at = 0.0;  // fraction of its first forward pass
  std::size_t bytes = 0;   // gradients
  bool table = false;      // of a tied table
  bool tail = false;       // of Phase::tail
};

// Buckets of one pipeline rank's gradients, in the order they are submitted, without a tied table
// that two ranks hold.
[[nodiscard]] std::vector<PlacedBucket> placed_buckets(const MeshJob& job, int pipeline_rank);

// Gradient bytes that tensor ranks have to sum first, under sequence parallelism.
[[nodiscard]] std::size_t norm_bytes(const MeshJob& job, int pipeline_rank);

}  // namespace slackline
