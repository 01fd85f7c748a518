#pragma once

#include <cstddef>
#include <vector>

#include "parallel/sync/rank_sync.h"

namespace slackline {

// The last sum of a bucket's gradients as a timeline sees it.
struct PlacedBucket {
  int stage = 0;  // the virtual stage that completes it in backward and reads it in forward
  double reduce_at = 1.0;  // fraction of that stage's last backward pass, or weight part
  double gather_at = 0.0;  // fraction of its first forward pass
  std::size_t bytes = 0;   // gradients
  bool table = false;      // of a tied table
  bool tail = false;       // of Phase::tail
};

// The sums of one pipeline rank's sync plan over data ranks, in the order of its buckets, without
// a tied table that two ranks hold.
[[nodiscard]] std::vector<PlacedBucket> placed_buckets(const MeshLists& lists, int pipeline_rank);

// Elements of gradients that its plan sums over tensor ranks first.
[[nodiscard]] std::size_t norm_elements(const MeshLists& lists, int pipeline_rank);

// Elements that one rank's optimizer updates of a virtual stage, gaps between parameters and a tied
// table's copies included; a mean over data ranks where they share them out.
[[nodiscard]] double updated_elements(const MeshLists& lists, int stage);

}  // namespace slackline
