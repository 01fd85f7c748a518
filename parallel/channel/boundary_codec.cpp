#include "parallel/channel/boundary_codec.h"

#include <utility>

#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

BoundaryCodec::BoundaryCodec(const BoundaryEnd& end, const CodecMaker& maker)
    : end_(end),
      widens_(widens(end)),
      codec_(maker({.setting = end.setting,
                    .parts = boundary_parts(end),
                    .shape = {end.shape.rows, end.shape.columns},
                    .seed = end.seed,
                    .device = end.device})),
      residuals_(
          end.side == BoundaryEnd::Side::sends ? end.setting.error_feedback : ErrorFeedback::none,
          boundary_parts(end),
          end.num_micro_batches,
          end.device) {}

Tensor BoundaryCodec::as_matrix(const Tensor& share) const {
  return share.reshaped({end_.shape.rows, end_.shape.columns});
}

void BoundaryCodec::encode(StreamView stream,
                           const Outgoing& outgoing,
                           const MessageKey& key,
                           const Tensor& frame,
                           Feedback feedback) {
  ArenaScope scratch(stream.workspace());
  Tensor values = as_matrix(outgoing.share);
  if (widens_) {
    values = scratch.allocate(DType::f32, values.shape());
    cast(stream, as_matrix(outgoing.share), values);
  }
  const Codec::Matrices residual = feedback == Feedback::on
                                       ? residuals_.of(static_cast<int>(key.micro_batch))
                                       : Codec::Matrices();
  const bool samples = sample_ && feedback == Feedback::on;
  if (samples) {
    sample_->add_input(stream, key.micro_batch, outgoing.input, residual);
  }
  {
    const TimedCall timed(encode_times_);
    codec_->encode(stream, {values}, residual, key, frame);
    stream.synchronize();
  }
  if (samples) {
    sample_->add_message(stream, key.micro_batch, *codec_, values, residual, frame);
  }
}

void BoundaryCodec::settle(StreamView stream, const MessageKey& key, const Tensor& frame) {
  const Codec::Matrices& residual = residuals_.of(static_cast<int>(key.micro_batch));
  if (!residual.empty()) {
    codec_->settle(stream, frame, residual);
    stream.synchronize();
  }
}

void BoundaryCodec::decode(StreamView stream, const Tensor& frame, const Tensor& share) {
  const TimedCall timed(decode_times_);
  ArenaScope scratch(stream.workspace());
  const Tensor matrix = as_matrix(share);
  if (widens_) {
    const Tensor widened = scratch.allocate(DType::f32, matrix.shape());
    codec_->decode(stream, frame, {widened}, false);
    cast(stream, widened, matrix);
  } else {
    codec_->decode(stream, frame, {matrix}, false);
  }
  stream.synchronize();
}

void BoundaryCodec::mask(StreamView stream, const Tensor& frame, const Tensor& share) {
  ArenaScope scratch(stream.workspace());
  const Tensor matrix = as_matrix(share);
  if (matrix.dtype() == DType::f32) {
    codec_->mask(stream, frame, matrix);
  } else {
    const Tensor widened = scratch.allocate(DType::f32, matrix.shape());
    cast(stream, matrix, widened);
    codec_->mask(stream, frame, widened);
    cast(stream, widened, matrix);
  }
  stream.synchronize();
}

void BoundaryCodec::keep_residuals_of(const std::set<int>& micro_batches) {
  for (int i = 0; i < std::ssize(residuals_.all()); ++i) {
    if (!micro_batches.contains(i)) {
      residuals_.clear(i);
    }
  }
}

CodecTimes BoundaryCodec::take_times() {
  return {.setting = end_.setting,
          .shape = {end_.shape.rows, end_.shape.columns},
          .sent_bytes = frame_bytes(),
          .encode = std::exchange(encode_times_, {}),
          .decode = std::exchange(decode_times_, {})};
}

void BoundaryCodec::add_state(const std::string& label,
                              const StateRanks& ranks,
                              std::vector<ChannelState>& list) {
  const auto add = [&](const std::string& name, const Tensor& data) {
    ChannelState& state = list.emplace_back();
    state.name = "residual/" + name;
    state.data = data;
    state.worker = ranks.data;
    state.num_workers = ranks.data_size;
    place_by_rank(state, ranks.tensor, ranks.tensor_size);
  };
  const std::vector<Codec::Matrices>& residuals = residuals_.all();
  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const bool each = end_.setting.error_feedback == ErrorFeedback::immediate;
    add(each ? label + "/" + std::to_string(i) : label, residuals[i].front());
  }
  for (const CodecState& state : codec_->state()) {
    add(label + "." + state.name, state.data);
  }
}

}  // namespace slackline
