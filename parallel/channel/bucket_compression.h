#pragma once

#include <cstdint>
#include <vector>

#include "model/model_slice.h"
#include "parallel/channel/compressed_bucket.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

struct StepCosts;

// Where a bucket is reduced, as far as compression depends on it.
struct BucketPlace {
  const std::vector<ChunkSlice>* chunks = nullptr;  // of the rank
  int pipeline_rank = 0;
  int pipeline_size = 1;
  int group_size = 1;  // of the ranks that add it up
  int group_rank = 0;
  SumOrder order = SumOrder::ranks;
  DataStrategy strategy = DataStrategy::replicate;
  std::uint64_t seed = 0;
  const StepCosts* rehearsed = nullptr;  // what codecs take on the rehearsal device
};

// The class that a parameter's gradient is of: its virtual stage's, and of the tail if the bucket
// ends with that stage's last backward pass. REQUIRES: the bucket holds it and is not of norms.
[[nodiscard]] schedule::TransferClass class_of(const Parameter& parameter,
                                               const GradientBucket& bucket,
                                               const BucketPlace& place);

// What of a bucket is compressed under a plan: matrices by the codec of their stage's class, the
// rest plain. Without sums where nothing is. Views are taken from the bucket's parameters. Under
// zero1 a rank gets its own rows alone of sums that can be cut by rows, unless the rows of one
// codec are shared out so unevenly that slices, all as long as the longest, would be more bytes.
[[nodiscard]] CompressedBucket::Options compressed_bucket(const GradientBucket& bucket,
                                                          const CompressionPlan& plan,
                                                          const BucketPlace& place);

// What all ranks of the group send for it in a step. REQUIRES: something is compressed.
[[nodiscard]] std::size_t compressed_bucket_bytes(const CompressedBucket::Options& options);

}  // namespace slackline
