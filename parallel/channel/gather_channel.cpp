#include "parallel/channel/gather_channel.h"

#include <algorithm>
#include <utility>

#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/arena.h"

namespace slackline {

namespace {

Tensor as_matrix(const Tensor& row) {
  return row.reshaped({1, static_cast<std::int64_t>(row.num_elements())});
}

}  // namespace

void GatherFrames::reserve(std::size_t slot, std::size_t bytes) {
  Buffer& buffer = buffers_[slot];
  if (buffer.bytes() < bytes) {
    buffer = Buffer("frames of weights", bytes, backing_);
    buffer.fill_zero();
  }
}

Tensor GatherFrames::row(std::size_t slot, std::size_t first, std::size_t bytes) const {
  return buffers_.at(slot).view(DType::u8, {static_cast<std::int64_t>(bytes)}, first);
}

void GatherChannel::obey(const CompressionPlan& plan, const CodecMaker& maker) {
  coded_ = coded_gather(*options_.plan, options_.bucket, plan);
  by_length_.clear();
  if (!coded_) {
    return;
  }
  const GradientBucket& bucket = options_.plan->buckets[options_.bucket];
  for (const CodedGather::Segment& segment : coded_->segments) {
    for (const Slice& share : segment.shares) {
      std::unique_ptr<Codec>& codec = by_length_[share.count()];
      if (codec == nullptr && share.count() > 0) {
        codec = maker({.setting = coded_->setting,
                       .parts = share_parts(bucket, share.count()),
                       .shape = {static_cast<std::int64_t>(share.count())},
                       .device = options_.whole.device()});
      }
    }
  }
  options_.frames->reserve(options_.slot, coded_->message_bytes());
}

Tensor GatherChannel::frames(std::size_t segment, std::size_t first, std::size_t count) const {
  for (std::size_t i = 0; i < segment; ++i) {
    first += coded_->segments[i].shares.size();
  }
  return options_.frames->row(
      options_.slot, first * coded_->frame_bytes, count * coded_->frame_bytes);
}

void GatherChannel::begin(const MessageKey& key) {
  const CodecStream& at = *codecs_;
  for (std::size_t i = 0; i < coded_->segments.size(); ++i) {
    const CodedGather::Segment& segment = coded_->segments[i];
    for (const SyncOp& op : segment.ops) {
      const bool first = &op == &segment.ops.front();
      TransferWork work{.worker = at.worker, .follows = first ? nullptr : &transfers_.back()};
      work.before = [this, stream = at.stream, key, i, first] {
        if (first) {
          encode(stream, key, i);
        }
      };
      if (&op == &segment.ops.back()) {
        work.after = [this, stream = at.stream, i] { decode(stream, i); };
      }
      transfers_.push_back(options_.groups.at(op.group)->all_gather(
          frames(i, segment.first_frame_of(op), segment.frames_of(op)),
          {.what = "coded weights of a layer"},
          work));
    }
  }
}

void GatherChannel::finish() {
  wait_for_all(transfers_);
  transfers_.clear();
}

void GatherChannel::encode(StreamView stream, const MessageKey& key, std::size_t segment) {
  const CodedGather::Segment& coded = coded_->segments[segment];
  const Slice share = coded.shares[coded.own];
  if (share.count() == 0) {
    return;
  }
  const TimedCall timed(encode_times_);
  Codec& codec = *by_length_.at(share.count());
  const Tensor& own = options_.own[segment];
  ArenaScope scratch(stream.workspace());
  Tensor values = as_matrix(own);
  if (own.dtype() != DType::f32) {
    values = scratch.allocate(DType::f32, values.shape());
    cast(stream, as_matrix(own), values);
  }
  const Tensor frame = frames(segment, coded.own, 1);
  MessageKey own_key = key;
  own_key.first_element = share.begin;
  codec.encode(
      stream, {values}, {}, own_key, frame.rows(0, static_cast<std::int64_t>(codec.frame_bytes())));
  stream.synchronize();
}

void GatherChannel::decode(StreamView stream, std::size_t segment) {
  const CodedGather::Segment& coded = coded_->segments[segment];
  const TimedCall timed(decode_times_, coded.num_frames());
  for (std::size_t i = 0; i < coded.shares.size(); ++i) {
    if (coded.shares[i].count() == 0) {
      continue;
    }
    const Codec& codec = *by_length_.at(coded.shares[i].count());
    const Tensor to = as_matrix(part_of(options_.whole, coded.shares[i]));
    const Tensor frame =
        frames(segment, i, 1).rows(0, static_cast<std::int64_t>(codec.frame_bytes()));
    ArenaScope scratch(stream.workspace());
    if (to.dtype() == DType::f32) {
      codec.decode(stream, frame, {to}, false);
      continue;
    }
    const Tensor exact = scratch.allocate(DType::f32, to.shape());
    codec.decode(stream, frame, {exact}, false);
    cast(stream, exact, to);
  }
  stream.synchronize();
}

std::size_t GatherChannel::codec_workspace(const Workers& workers) const {
  std::size_t bytes = 0;
  for (const auto& [length, codec] : by_length_) {
    if (codec != nullptr) {
      const Shape shape{static_cast<std::int64_t>(length)};
      const bool widens = options_.whole.dtype() != DType::f32;
      bytes = std::max(
          bytes,
          codec->workspace_bytes(workers) + (widens ? Arena::aligned_bytes(DType::f32, shape) : 0));
    }
  }
  return bytes;
}

void GatherChannel::take_times(std::vector<CodecTimes>& times) {
  if (coded_) {
    times.push_back({.setting = coded_->setting,
                     .shape = {static_cast<std::int64_t>(coded_->longest_share())},
                     .sent_bytes = coded_->frame_bytes,
                     .encode = std::exchange(encode_times_, {}),
                     .decode = std::exchange(decode_times_, {})});
  }
}

}  // namespace slackline
