#include "parallel/compressed_bucket.h"

#include <algorithm>
#include <utility>

#include "core/kernels/elementwise.h"

namespace slackline {

namespace {

constexpr TransferNote kNote{.what = "compressed gradients"};

Tensor row(const Buffer& buffer, std::size_t first, std::size_t bytes) {
  return buffer.view(DType::u8, {static_cast<std::int64_t>(bytes)}, first);
}

void copy(const Tensor& from, const Tensor& to) {
  SL_CHECK_EQ(from.num_elements(), to.num_elements());
  std::copy_n(from.data<float>(), from.num_elements(), to.data<float>());
}

std::size_t plain_elements(const std::vector<const Parameter*>& plain) {
  std::size_t count = 0;
  for (const Parameter* parameter : plain) {
    count += parameter->gradient.num_elements();
  }
  return count;
}

}  // namespace

std::vector<CodecPart> codec_parts(const std::vector<const Parameter*>& matrices) {
  std::vector<CodecPart> parts;
  parts.reserve(matrices.size());
  for (const Parameter* parameter : matrices) {
    const Shape& shape = parameter->shard.shape;
    parts.push_back(
        {.name = parameter->spec.name, .shape = {.rows = shape[0], .columns = shape[1]}});
  }
  return parts;
}

CompressedSum::CompressedSum(const Options& options)
    : options_(options),
      codec_(make_codec(options.setting, codec_parts(options.matrices), options.seed)),
      residuals_(options.setting.error_feedback, codec_parts(options.matrices), 1) {
  for (const Parameter* parameter : options.matrices) {
    gradients_.push_back(parameter->gradient);
  }
  if (codec_->sums() == 0) {
    frames_ = Buffer("frames", codec_->frame_bytes() * static_cast<std::size_t>(options.ranks));
  }
}

void CompressedSum::begin(StreamView stream, Communicator& group, const MessageKey& key) {
  SL_CHECK_EQ(group.size(), options_.ranks);
  const Codec::Matrices& residual = residuals_.of(0);
  if (sample_ != nullptr) {
    sample_->take_raw(gradients_);
  }
  if (codec_->sums() > 0) {
    round_ = 1;
    transfer_ = group.all_reduce(
        codec_->begin_sum(stream, gradients_, residual, key), kNote, SumOrder::ranks);
    return;
  }
  const std::size_t bytes = codec_->frame_bytes();
  const Tensor own = row(frames_, static_cast<std::size_t>(group.rank()) * bytes, bytes);
  codec_->encode(stream, gradients_, residual, key, own);
  transfer_ = group.all_gather(row(frames_, 0, frames_.bytes()), kNote);
  if (!residual.empty()) {
    codec_->settle(stream, own, residual);
  }
}

bool CompressedSum::advance(StreamView stream, Communicator& group) {
  transfer_.wait();
  if (codec_->sums() > 0 && advance_sum(stream, group)) {
    return true;
  }
  if (codec_->sums() == 0) {
    add_frames(stream);
  }
  if (sample_ != nullptr) {
    sample_->take_sent(gradients_, residuals_.of(0));
  }
  return false;
}

void CompressedSum::adopt(CompressedSum& before) {
  const bool same_setting = options_.setting == before.options_.setting;
  const std::vector<CodecState> states = codec_->state();
  const std::vector<CodecState> states_before = before.codec_->state();
  for (std::size_t i = 0; i < options_.matrices.size(); ++i) {
    const std::vector<const Parameter*>& matrices = before.options_.matrices;
    const auto found = std::find(matrices.begin(), matrices.end(), options_.matrices[i]);
    if (found == matrices.end()) {
      continue;
    }
    const auto k = static_cast<std::size_t>(found - matrices.begin());
    if (!residuals_.all().empty() && !before.residuals_.all().empty()) {
      copy(before.residuals_.of(0)[k], residuals_.of(0)[i]);
    }
    if (same_setting && !states.empty()) {
      copy(states_before[k].data, states[i].data);
    }
  }
}

bool CompressedSum::advance_sum(StreamView stream, Communicator& group) {
  const Codec::Matrices& residual = residuals_.of(0);
  if (round_ < codec_->sums()) {
    ++round_;
    transfer_ =
        group.all_reduce(codec_->next_sum(stream, gradients_, residual), kNote, SumOrder::ranks);
    return true;
  }
  codec_->finish_sum(stream, gradients_, residual, options_.ranks);
  return false;
}

void CompressedSum::add_frames(StreamView stream) {
  const std::size_t bytes = codec_->frame_bytes();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const Tensor frame = row(frames_, static_cast<std::size_t>(rank) * bytes, bytes);
    codec_->decode(stream, frame, gradients_, rank > 0);
  }
}

CompressedBucket::CompressedBucket(const Options& options)
    : options_(options), moving_(options.sums.size(), false) {
  sums_.reserve(options.sums.size());
  for (const CompressedSum::Options& sum : options.sums) {
    sums_.emplace_back(sum);
  }
  if (!options.plain.empty()) {
    plain_ = make_buffer(
        "plain gradients", DType::f32, {static_cast<std::int64_t>(plain_elements(options.plain))});
  }
}

void CompressedBucket::adopt(CompressedBucket& before) {
  for (CompressedSum& sum : sums_) {
    for (CompressedSum& old : before.sums_) {
      sum.adopt(old);
    }
  }
}

void CompressedBucket::copy_plain(StreamView stream, Direction direction) const {
  std::size_t offset = 0;
  for (const Parameter* parameter : options_.plain) {
    const Tensor packed = plain_.view(DType::f32, parameter->gradient.shape(), offset);
    direction == Direction::pack ? cast(stream, parameter->gradient, packed)
                                 : cast(stream, packed, parameter->gradient);
    offset += packed.bytes();
  }
}

void CompressedBucket::begin(StreamView stream, Communicator& group, const MessageKey& key) {
  if (!options_.plain.empty()) {
    copy_plain(stream, Direction::pack);
    transfer_ = group.all_reduce(
        plain_.view(DType::f32, {static_cast<std::int64_t>(plain_elements(options_.plain))}),
        {.what = "gradients beside compressed ones"},
        options_.order);
  }
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].begin(stream, group, key);
    moving_[i] = true;
  }
}

bool CompressedBucket::advance(StreamView stream, Communicator& group) {
  if (!transfer_.is_empty()) {
    transfer_.wait();
    transfer_ = {};
    copy_plain(stream, Direction::unpack);
  }
  bool more = false;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    moving_[i] = moving_[i] && sums_[i].advance(stream, group);
    more = more || moving_[i];
  }
  return more;
}

}  // namespace slackline
