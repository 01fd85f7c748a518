#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "compress/codec.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Says how a bucket's weights travel coded to the passes that read them (ZeRO++'s quantized
// gathers): every rank makes a frame of what it keeps, gathers carry frames, and all ranks, the
// owners among them, read what frames decode to.
struct CodedGather {
  // A segment is gathered at once. A tied table on two stages has two, its halves; others have one.
  struct Segment {
    std::vector<SyncOp> ops{};    // as they follow each other; the last one covers the segment
    std::vector<Slice> shares{};  // elements of the bucket, in the order of their frames
    std::size_t own = 0;          // this rank's share

    // Counts shares that are not empty.
    [[nodiscard]] std::ptrdiff_t num_frames() const {
      return std::ranges::count_if(shares, [](const Slice& share) { return share.count() > 0; });
    }

    // Frames that an op puts together.
    [[nodiscard]] std::size_t frames_of(const SyncOp& op) const {
      const bool is_last = op.range == ops.back().range;
      return is_last ? shares.size() : static_cast<std::size_t>(op.ranks);
    }

    // The first of them that this rank sees.
    [[nodiscard]] std::size_t first_frame_of(const SyncOp& op) const {
      return own / frames_of(op) * frames_of(op);
    }
  };

  CodecSetting setting{};
  std::size_t frame_bytes = 0;  // of the longest share; all frames take as many
  std::vector<Segment> segments{};

  // These look at all segments.
  [[nodiscard]] std::size_t message_bytes() const;
  [[nodiscard]] std::size_t longest_share() const;
};

// Nothing where the plan leaves the bucket plain, a codec would not make it smaller, or no rank has
// anything to gather.
[[nodiscard]] std::optional<CodedGather> coded_gather(const SyncPlan& sync,
                                                      std::size_t bucket,
                                                      const CompressionPlan& plan);

// The call that an op of it is.
[[nodiscard]] CollectiveCall call_of(const CodedGather& gather, const SyncOp& op);

// A share as a codec knows it: one row of elements.
[[nodiscard]] std::vector<CodecPart> share_parts(const GradientBucket& bucket,
                                                 std::size_t elements);

}  // namespace slackline
