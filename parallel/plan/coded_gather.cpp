#include "parallel/plan/coded_gather.h"

#include <algorithm>

#include "compress/codec_bytes.h"
#include "core/comm/communicator.h"

namespace slackline {

namespace {

using Segment = CodedGather::Segment;

bool is_inside(Slice part, Slice whole) {
  return whole.begin <= part.begin && part.end <= whole.end;
}

// The gathers before a use by one unit, which stands for all that read the bucket.
std::vector<Segment> segments_of(const SyncPlan& sync, std::size_t bucket) {
  std::vector<Segment> segments;
  std::optional<GradientBucket::Unit> unit;
  for (const SyncOp& op : sync.ops) {
    if (op.bucket != bucket || op.begin != SyncOp::Begin::before_use ||
        op.unit != unit.value_or(*op.unit)) {
      continue;
    }
    unit = op.unit;
    const bool goes_on = !segments.empty() && is_inside(segments.back().ops.back().range, op.range);
    if (!goes_on) {
      segments.emplace_back();
    }
    segments.back().ops.push_back(op);
  }
  return segments;
}

void add_shares(Segment& segment) {
  const SyncOp& last = segment.ops.back();
  const bool in_two = segment.ops.size() > 1;
  const int parts = in_two ? segment.ops.front().ranks : 1;
  for (int i = 0; i < last.ranks; ++i) {
    const Slice outer = slice_of(last.range, i, last.ranks);
    for (int j = 0; j < parts; ++j) {
      segment.shares.push_back(slice_of(outer, j, parts));
    }
  }
  const int own = last.rank * parts + (in_two ? segment.ops.front().rank : 0);
  segment.own = static_cast<std::size_t>(own);
}

// Whether tensor ranks have some of its matrices in common, and parts of others. A share's scales
// are then other ones on each rank, and with them what codes make of the former.
bool is_partly_in_common(const GradientBucket& bucket) {
  const auto is_cut = [](const Parameter* one) { return one->shard.shape != one->spec.shape; };
  return std::ranges::any_of(bucket.holds, is_cut) &&
         std::ranges::any_of(bucket.holds, [](const Parameter* one) {
           return one->spec.cut == TensorCut::none && one->spec.shape.rank() == 2;
         });
}

}  // namespace

std::size_t CodedGather::message_bytes() const {
  std::size_t frames = 0;
  for (const Segment& segment : segments) {
    frames += segment.shares.size();
  }
  return frames * frame_bytes;
}

std::size_t CodedGather::longest_share() const {
  std::size_t longest = 0;
  for (const Segment& segment : segments) {
    for (const Slice& share : segment.shares) {
      longest = std::max(longest, share.count());
    }
  }
  return longest;
}

std::optional<CodedGather> coded_gather(const SyncPlan& sync,
                                        std::size_t bucket,
                                        const CompressionPlan& plan) {
  CodedGather gather{.segments = segments_of(sync, bucket)};
  if (gather.segments.empty()) {
    return std::nullopt;
  }
  const CodecSetting* setting = plan.setting_of(*gather.segments.front().ops.front().members);
  if (setting == nullptr) {
    return std::nullopt;
  }
  gather.setting = *setting;
  for (Segment& segment : gather.segments) {
    add_shares(segment);
  }
  const GradientBucket& held = sync.buckets[bucket];
  if (!adds(setting->kind) && is_partly_in_common(held)) {
    return std::nullopt;
  }
  const std::vector<CodecPart> longest = share_parts(held, gather.longest_share());
  if (!setting->always && !shrinks(*setting, longest.front().shape, weight_type(held, sync))) {
    return std::nullopt;
  }
  gather.frame_bytes = frame_bytes(*setting, longest);
  return gather;
}

CollectiveCall call_of(const CodedGather& gather, const SyncOp& op) {
  const auto segment = std::ranges::find_if(gather.segments, [&](const Segment& candidate) {
    return is_inside(op.range, candidate.ops.back().range);
  });
  return {.kind = TransferRecord::Kind::all_gather,
          .elements = segment->frames_of(op) * gather.frame_bytes,
          .element_size = 1,
          .hierarchy = op.hierarchy};
}

std::vector<CodecPart> share_parts(const GradientBucket& bucket, std::size_t elements) {
  return {{.name = "weights of " + bucket.holds.front()->spec.name,
           .shape = {.rows = 1, .columns = static_cast<std::int64_t>(elements)}}};
}

}  // namespace slackline
