#include "parallel/channel/compressed_bucket.h"

#include <algorithm>
#include <utility>

#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/tensor/host_tensor.h"

namespace slackline {

namespace {

constexpr TransferNote kNote{.what = "compressed gradients"};

Tensor row(const Buffer& buffer, std::size_t first, std::size_t bytes) {
  return buffer.view(DType::u8, {static_cast<std::int64_t>(bytes)}, first);
}

void copy(const Tensor& from, const Tensor& to) {
  SL_CHECK_EQ(from.num_elements(), to.num_elements());
  const HostTensor read(from);
  const HostTensor written(to, HostTensor::Contents::undefined);
  std::ranges::copy(read.tensor().span<float>(), written.tensor().span<float>().begin());
  written.write_back();
}

Device device_of(const CompressedSum::Options& options) {
  return options.matrices.front()->gradient.device();
}

std::size_t plain_elements(const std::vector<const Parameter*>& plain) {
  std::size_t count = 0;
  for (const Parameter* parameter : plain) {
    count += parameter->gradient.num_elements();
  }
  return count;
}

std::unique_ptr<Codec> codec_for(const CompressedSum::Options& options,
                                 const std::vector<CodecPart>& parts) {
  return options.rehearsed ? make_rehearsed_codec(options.setting, parts, *options.rehearsed)
                           : make_codec(options.setting, parts, options.seed, device_of(options));
}

std::unique_ptr<SumSlices> slices_for(const CompressedSum::Options& options) {
  const std::vector<CodecPart> parts = codec_parts(options.matrices);
  const std::vector<CodecPart> own =
      parts_of_rows(parts, options.owners[static_cast<std::size_t>(options.rank)]);
  return std::make_unique<SumSlices>(
      SumSlices::Options{.setting = options.setting,
                         .parts = parts,
                         .owners = options.owners,
                         .rank = options.rank,
                         .device = device_of(options)},
      adds(options.setting.kind) || own.empty() ? nullptr : codec_for(options, own));
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

std::vector<std::int64_t> message_shape(const CompressedSum::Options& sum) {
  const std::vector<CodecPart> parts = codec_parts(sum.matrices);
  if (parts.size() == 1) {
    return {parts.front().shape.rows, parts.front().shape.columns};
  }
  std::int64_t elements = 0;
  for (const CodecPart& part : parts) {
    elements += static_cast<std::int64_t>(part.shape.num_elements());
  }
  return {elements};
}

std::size_t message_bytes(const CompressedSum::Options& sum) {
  const std::vector<CodecPart> parts = codec_parts(sum.matrices);
  if (!sum.owners.empty()) {
    return sum.owners.size() * (adds(sum.setting.kind)
                                    ? slice_elements(parts, sum.owners) * size_of(DType::bf16)
                                    : slice_bytes(sum.setting, parts, sum.owners));
  }
  if (!adds(sum.setting.kind)) {
    return frame_bytes(sum.setting, parts);
  }
  std::size_t bytes = 0;
  for (const SumRound& round : sum_rounds(sum.setting, parts)) {
    bytes += round.elements * round.element_bytes;
  }
  return bytes;
}

CompressedSum::CompressedSum(const Options& options)
    : options_(options),
      codec_(codec_for(options, codec_parts(options.matrices))),
      residuals_(options.rehearsed ? ErrorFeedback::none : options.setting.error_feedback,
                 codec_parts(options.matrices),
                 1,
                 device_of(options)) {
  for (const Parameter* parameter : options.matrices) {
    gradients_.push_back(parameter->gradient);
  }
  if (!options.owners.empty()) {
    slices_ = slices_for(options);
  } else if (codec_->sums() == 0) {
    frames_ = Buffer("frames",
                     codec_->frame_bytes() * static_cast<std::size_t>(options.ranks),
                     backing_of(device_of(options)));
  }
}

void CompressedSum::begin(const CodecStream& at, Communicator& group, const MessageKey& key) {
  SL_CHECK_EQ(group.size(), options_.ranks);
  MessageKey own = key;
  own.sender = static_cast<std::uint64_t>(group.rank());
  if (slices_ != nullptr) {
    codec_->sums() > 0 ? begin_slices_of_sum(at, group, own)
                       : begin_slices_of_frames(at, group, own);
    return;
  }
  codec_->sums() > 0 ? begin_sums(at, group, own) : begin_frames(at, group, own);
}

void CompressedSum::begin_sample() {
  sample_ = std::make_unique<GradientSample>(gradients_);
  if (slices_ != nullptr) {
    sample_->take_sent_of(rows_counted_by(options_.owners, options_.rank));
  }
}

void CompressedSum::finish() {
  for (Transfer& transfer : transfers_) {
    transfer.wait();
  }
  transfers_.clear();
}

// Each round's addend is made of the sum of the round before.
void CompressedSum::begin_sums(const CodecStream& at, Communicator& group, const MessageKey& key) {
  std::vector<Tensor> addends;
  for (int round = 1; round <= codec_->sums(); ++round) {
    addends.push_back(codec_->addend(round));
  }
  for (int round = 1; round <= codec_->sums(); ++round) {
    const bool first = round == 1;
    TransferWork work{.worker = at.worker, .follows = first ? nullptr : &transfers_.back()};
    work.before = [this, stream = at.stream, key, first] {
      if (first) {
        take_raw_sample(stream);
      }
      using Piece = TimedCall::Piece;
      const TimedCall timed(encode_times_, first ? Piece::first : Piece::further);
      first ? codec_->begin_sum(stream, gradients_, residuals_.of(0), key)
            : codec_->next_sum(stream, gradients_, residuals_.of(0));
      stream.synchronize();
    };
    if (round == codec_->sums()) {
      work.after = [this, stream = at.stream] {
        {
          const TimedCall timed(decode_times_);
          codec_->finish_sum(stream, gradients_, residuals_.of(0), options_.ranks);
          stream.synchronize();
        }
        take_sent_sample(stream);
      };
    }
    transfers_.push_back(group.all_reduce(
        addends[static_cast<std::size_t>(round - 1)], kNote, SumOrder::ranks, work));
  }
}

void CompressedSum::begin_frames(const CodecStream& at,
                                 Communicator& group,
                                 const MessageKey& key) {
  const std::size_t bytes = codec_->frame_bytes();
  const Tensor own = row(frames_, static_cast<std::size_t>(group.rank()) * bytes, bytes);
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key, own] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    encode(stream, key, own);
  };
  work.beside = [this, stream = at.stream, own] { settle(stream, own); };
  work.after = [this, stream = at.stream] {
    add_frames(stream);
    take_sent_sample(stream);
  };
  transfers_.push_back(group.all_gather(row(frames_, 0, frames_.bytes()), kNote, work));
}

void CompressedSum::encode(StreamView stream, const MessageKey& key, const Tensor& frame) {
  codec_->encode(stream, gradients_, residuals_.of(0), key, frame);
  stream.synchronize();
}

void CompressedSum::settle(StreamView stream, const Tensor& frame) {
  if (!residuals_.of(0).empty()) {
    codec_->settle(stream, frame, residuals_.of(0));
    stream.synchronize();
  }
}

// The one round of messages that add and can be cut by rows.
void CompressedSum::begin_slices_of_sum(const CodecStream& at,
                                        Communicator& group,
                                        const MessageKey& key) {
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    codec_->begin_sum(stream, gradients_, residuals_.of(0), key);
    slices_->scatter(stream, codec_->addend(1));
    stream.synchronize();
  };
  work.after = [this, stream = at.stream] {
    {
      const TimedCall timed(decode_times_);
      slices_->collect(stream, codec_->addend(1));
      codec_->finish_sum(stream, gradients_, residuals_.of(0), options_.ranks);
      stream.synchronize();
    }
    take_sent_sample(stream);
  };
  transfers_.push_back(group.reduce_scatter(slices_->addends(), kNote, SumOrder::ranks, work));
}

void CompressedSum::begin_slices_of_frames(const CodecStream& at,
                                           Communicator& group,
                                           const MessageKey& key) {
  TransferWork work{.worker = at.worker};
  work.before = [this, stream = at.stream, key] {
    take_raw_sample(stream);
    const TimedCall timed(encode_times_);
    encode(stream, key, slices_->frame());
    slices_->cut(stream);
    stream.synchronize();
  };
  work.beside = [this, stream = at.stream] { settle(stream, slices_->frame()); };
  work.after = [this, stream = at.stream] {
    {
      const TimedCall timed(decode_times_);
      slices_->add_up(stream, gradients_);
      stream.synchronize();
    }
    take_sent_sample(stream);
  };
  transfers_.push_back(group.all_to_all(slices_->sent(), slices_->received(), kNote, work));
}

CodecTimes CompressedSum::take_times() {
  return {.setting = options_.setting,
          .shape = message_shape(options_),
          .sent_bytes = message_bytes(options_),
          .encode = std::exchange(encode_times_, {}),
          .decode = std::exchange(decode_times_, {})};
}

void CompressedSum::take_raw_sample(StreamView stream) {
  if (sample_ != nullptr) {
    sample_->take_raw(stream, gradients_);
  }
}

void CompressedSum::take_sent_sample(StreamView stream) {
  if (sample_ != nullptr) {
    sample_->take_sent(stream, gradients_, residuals_.of(0));
  }
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

void CompressedSum::add_frames(StreamView stream) {
  const TimedCall timed(decode_times_);
  const std::size_t bytes = codec_->frame_bytes();
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const Tensor frame = row(frames_, static_cast<std::size_t>(rank) * bytes, bytes);
    codec_->decode(stream, frame, gradients_, rank > 0);
  }
  stream.synchronize();
}

CompressedBucket::CompressedBucket(const Options& options) : options_(options) {
  sums_.reserve(options.sums.size());
  for (const CompressedSum::Options& sum : options.sums) {
    sums_.emplace_back(sum);
  }
  if (!options.plain.empty()) {
    plain_ = make_buffer("plain gradients",
                         DType::f32,
                         {static_cast<std::int64_t>(plain_elements(options.plain))},
                         backing_of(options.plain.front()->gradient.device()));
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
  stream.synchronize();
}

void CompressedBucket::begin(const CodecStream& at, Communicator& group, const MessageKey& key) {
  if (!options_.plain.empty()) {
    transfer_ = group.all_reduce(
        plain_.view(DType::f32, {static_cast<std::int64_t>(plain_elements(options_.plain))}),
        {.what = "gradients beside compressed ones"},
        options_.order,
        {.worker = at.worker,
         .before = [this, stream = at.stream] { copy_plain(stream, Direction::pack); },
         .after = [this, stream = at.stream] { copy_plain(stream, Direction::unpack); }});
  }
  for (CompressedSum& sum : sums_) {
    sum.begin(at, group, key);
  }
}

void CompressedBucket::finish() {
  transfer_.wait();
  for (CompressedSum& sum : sums_) {
    sum.finish();
  }
}

}  // namespace slackline
