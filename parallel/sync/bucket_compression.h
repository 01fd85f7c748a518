#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "core/comm/communicator.h"
#include "model/model_slice.h"
#include "model/parameters.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/gradient_buckets.h"
#include "parallel/sync/owned_rows.h"

namespace slackline {

// Matrices of a gradient bucket that one codec compresses, and whom their sum is for.
struct CodedSum {
  CodecSetting setting{};
  std::vector<const Parameter*> matrices{};
  int ranks = 1;       // of the group
  int rank = 0;        // this one
  bool table = false;  // a tied table's sum, which is a site of its own
  std::uint64_t seed = 0;
  OwnedRows owners{};  // empty: every rank gets the whole sum

  friend bool operator==(const CodedSum&, const CodedSum&) = default;
};

// A gradient bucket of which some matrices are compressed; the rest is packed and travels plain.
struct CodedBucket {
  std::vector<CodedSum> sums{};
  std::vector<const Parameter*> plain{};
  int ranks = 1;                     // of the group
  SumOrder order = SumOrder::ranks;  // of what travels plain

  friend bool operator==(const CodedBucket&, const CodedBucket&) = default;
};

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
[[nodiscard]] CodedBucket coded_bucket(const GradientBucket& bucket,
                                       const CompressionPlan& plan,
                                       const BucketPlace& place);

// The shape of a sum's messages in CodecTimes.
[[nodiscard]] std::vector<std::int64_t> message_shape(const CodedSum& sum);

// What a rank brings to a sum, in bytes; with owners what all slices of it have.
[[nodiscard]] std::size_t message_bytes(const CodedSum& sum);

// The matrices as a codec knows them.
[[nodiscard]] std::vector<CodecPart> codec_parts(const std::vector<const Parameter*>& matrices);

// What all ranks of the group send for it in a step. REQUIRES: something is compressed.
[[nodiscard]] std::size_t coded_bucket_bytes(const CodedBucket& bucket);

}  // namespace slackline
