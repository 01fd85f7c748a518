#pragma once

#include <cstdint>
#include <vector>

#include "compress/codec.h"
#include "core/comm/collective_bytes.h"
#include "core/comm/communicator.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/owned_rows.h"
#include "parallel/plan/summed_part.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Matrices of a gradient bucket that one codec compresses, and whom their sum is for.
struct CodedSum {
  // A tied table's sum is a site of its own, and so is that of differences of an outer round
  // (coded_round.h).
  enum class Of { gradients, table, round };

  CodecSetting setting{};
  std::vector<SummedPart> matrices{};
  int ranks = 1;  // of the group
  int rank = 0;   // this one
  Of of = Of::gradients;
  std::uint64_t seed = 0;
  SumOrder order{};    // of messages that add
  OwnedRows owners{};  // who adds up which rows; empty: every rank all of them
  // Owners send their rows of the sum to all, coded anew; else each keeps them to itself.
  bool two_shot = false;

  friend bool operator==(const CodedSum&, const CodedSum&) = default;
};

// A gradient bucket, or a rank's share of an outer round, of which some matrices are compressed;
// the rest is packed and travels plain.
struct CodedBucket {
  std::vector<CodedSum> sums{};
  std::vector<SummedPart> plain{};
  int ranks = 1;          // of the group
  SumOrder order{};       // of what travels plain
  Hierarchy hierarchy{};  // of the group

  friend bool operator==(const CodedBucket&, const CodedBucket&) = default;
};

// What of a bucket is compressed under a plan in `op`, the last sum of it: matrices by the codec of
// their stage's class, the rest plain. Without sums where nothing is. Where updates are shared out
// a rank gets its own rows alone of sums that can be cut by rows, unless the rows of one codec are
// shared out so unevenly that slices, all as long as the longest, would be more bytes. Where all
// ranks need a sum and the setting says so, it is made in two shots, but for matrices that are no
// fewer bytes so, as all over two ranks.
[[nodiscard]] CodedBucket coded_bucket(const SyncOp& op,
                                       const SyncPlan& sync,
                                       const RankPlan& rank,
                                       const CompressionPlan& plan,
                                       std::uint64_t seed = 0);

// The shape of a sum's messages in CodecTimes.
[[nodiscard]] std::vector<std::int64_t> message_shape(const CodedSum& sum);

// The same of a message of these matrices.
[[nodiscard]] std::vector<std::int64_t> message_shape(const std::vector<CodecPart>& parts);

// Returns the bytes that a rank brings to a sum; with owners those of all slices of it. In two
// shots the sum, coded anew, has as many.
[[nodiscard]] std::size_t message_bytes(const CodedSum& sum);

// The matrices as a codec knows them.
[[nodiscard]] std::vector<CodecPart> matrix_parts(const std::vector<SummedPart>& matrices);

// The calls that the ranks of its group make for it. REQUIRES: something is compressed.
[[nodiscard]] std::vector<CollectiveCall> calls_of(const CodedBucket& bucket);

}  // namespace slackline
