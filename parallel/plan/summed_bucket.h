#pragma once

#include <vector>

#include "model/parameters.h"
#include "parallel/sync/gradient_buckets.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Says what one sum of a bucket's gradients adds up, as a bucket of its own. Where it works on all
// of the bucket's elements that is the bucket. Where ranks share them out it is this rank's range:
// whole rows of matrices, which codecs take like matrices, and as plain rows what it has of the
// rows that it begins and ends in, and of vectors. Moves, but does not copy: the bucket points to
// the parts.
struct SummedBucket {
  SummedBucket() = default;
  SummedBucket(SummedBucket&&) = default;
  SummedBucket& operator=(SummedBucket&&) = default;
  SummedBucket(const SummedBucket&) = delete;
  SummedBucket& operator=(const SummedBucket&) = delete;
  ~SummedBucket() = default;

  // Views of nothing; a spec is that of the whole parameter, under a name with the elements of the
  // local tensor. Without any the bucket holds the plan's parameters.
  std::vector<Parameter> parts{};
  GradientBucket bucket{};
};

[[nodiscard]] SummedBucket summed_bucket(const SyncOp& op, const SyncPlan& plan);

}  // namespace slackline
