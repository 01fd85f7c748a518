#include "parallel/channel/boundary_codec.h"

#include <utility>

#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"

namespace slackline {

namespace {

std::vector<CodecPart> parts_of(const BoundaryCodec::Options& options) {
  return {{.name = options.name, .shape = options.shape}};
}

// Codecs work on f32: bf16 boundaries pass through a widened copy in the workspace.
bool widens(const BoundaryCodec::Options& options) {
  return options.dtype != DType::f32 && !options.rehearsed;
}

std::size_t widened_bytes(const BoundaryCodec::Options& options) {
  return !widens(options)
             ? 0
             : Arena::aligned_bytes(DType::f32, {options.shape.rows, options.shape.columns});
}

std::unique_ptr<Codec> codec_for(const BoundaryCodec::Options& options) {
  return options.rehearsed
             ? make_rehearsed_codec(options.setting, parts_of(options), *options.rehearsed)
             : make_codec(options.setting, parts_of(options), options.seed, options.device);
}

}  // namespace

BoundaryCodec::BoundaryCodec(const Options& options)
    : options_(options),
      codec_(codec_for(options)),
      residuals_(options.end == End::sends && !options.rehearsed ? options.setting.error_feedback
                                                                 : ErrorFeedback::none,
                 parts_of(options),
                 options.num_micro_batches,
                 options.device) {}

Tensor BoundaryCodec::as_matrix(const Tensor& share) const {
  return share.reshaped({options_.shape.rows, options_.shape.columns});
}

void BoundaryCodec::encode(StreamView stream,
                           const Outgoing& outgoing,
                           const MessageKey& key,
                           const Tensor& frame,
                           Feedback feedback) {
  ArenaScope scratch(stream.workspace());
  Tensor values = as_matrix(outgoing.share);
  if (widens(options_)) {
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
  if (widens(options_)) {
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

CodecTimes BoundaryCodec::take_times() {
  return {.setting = options_.setting,
          .shape = {options_.shape.rows, options_.shape.columns},
          .sent_bytes = frame_bytes(),
          .encode = std::exchange(encode_times_, {}),
          .decode = std::exchange(decode_times_, {})};
}

std::size_t BoundaryCodec::workspace_bytes(const Options& options, const Workers& workers) {
  return widened_bytes(options) + codec_for(options)->workspace_bytes(workers);
}

bool pays_at_boundary(const CodecSetting& setting, const MatrixShape& share, DType plain) {
  return setting.always || frame_bytes(setting, {{.name = "", .shape = share}}) <
                               share.num_elements() * size_of(plain);
}

MatrixShape share_shape(std::int64_t tokens, std::int64_t C, int tensor_size) {
  if (tokens % tensor_size == 0) {
    return {.rows = tokens / tensor_size, .columns = C};
  }
  return {.rows = tokens, .columns = C / tensor_size};  // heads divide, so channels do
}

}  // namespace slackline
