#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "compress/codecs/rehearsed_codec.h"
#include "compress/residuals.h"
#include "core/tensor/buffer.h"
#include "parallel/channel/boundary_sample.h"
#include "parallel/channel/codec_times.h"

namespace slackline {

// One end of one direction of a pipeline boundary whose messages are compressed: this rank's share
// of the boundary tensor, seen as a matrix of tokens by channels. The sending end holds what goes
// from message to message; the receiving end holds nothing but scratch. One thread at a time.
class BoundaryCodec {
 public:
  enum class End { sends, receives };
  enum class Feedback { on, off };  // off: the message stands for itself, as in evaluation

  struct Options {
    CodecSetting setting{};
    End end = End::sends;
    std::string name;          // "pipeline_backward/3": site and sending virtual stage, for draws
    std::string place{};       // "pipeline_backward/5": site and layers before it, for its state
    MatrixShape shape{};       // of this rank's share
    DType dtype = DType::f32;  // of the boundary tensor
    Device device = Device::cpu;
    int num_micro_batches = 1;
    std::uint64_t seed = 0;
    std::optional<RehearsedSeconds> rehearsed{};  // on the rehearsal device

    friend bool operator==(const Options&, const Options&) = default;
  };

  explicit BoundaryCodec(const Options& options);

  [[nodiscard]] const Options& options() const { return options_; }

  [[nodiscard]] std::size_t frame_bytes() const { return codec_->frame_bytes(); }

  // What a sending rank has: its share of the boundary tensor, and where a gradient is sent, its
  // share of the input of the stage that sends.
  struct Outgoing {
    Tensor share{};
    Tensor input{};
  };

  // Each call returns when it is done. Of the sending end. `frame` is (frame_bytes) of u8. After
  // encode() the frame may be sent; with feedback on, settle() then brings the residual up to date.
  void encode(StreamView stream,
              const Outgoing& outgoing,
              const MessageKey& key,
              const Tensor& frame,
              Feedback feedback);
  void settle(StreamView stream, const MessageKey& key, const Tensor& frame);

  // Of the receiving end: overwrites `share`.
  void decode(StreamView stream, const Tensor& frame, const Tensor& share);

  // Whether gradients are masked by what the activations' codec kept; if so, mask() takes those of
  // `share` back through `frame`: zero where it left the activation out, else scaled as it was.
  [[nodiscard]] bool masks() const { return codec_->gradient() == CodecGradient::masked; }

  void mask(StreamView stream, const Tensor& frame, const Tensor& share);

  [[nodiscard]] Codec& codec() { return *codec_; }

  [[nodiscard]] const Residuals& residuals() const { return residuals_; }

  // Of the sending end: takes over what another codec of the boundary owes of a micro-batch; with
  // lazy feedback, of all. REQUIRES: the same error feedback.
  void take_residual(int micro_batch, BoundaryCodec& from) {
    residuals_.take(micro_batch, from.residuals_);
  }

  // Of the sending end: measures the messages with feedback on until the sample is taken.
  void begin_sample(BoundarySample::Classes classes) {
    sample_.emplace(std::move(classes), options_.setting.error_feedback);
  }

  [[nodiscard]] bool is_sampled() const { return sample_.has_value(); }

  [[nodiscard]] std::optional<BoundarySample> take_sample() {
    return std::exchange(sample_, std::nullopt);
  }

  // Of the calls since the last time it was asked.
  [[nodiscard]] CodecTimes take_times();

  [[nodiscard]] static std::size_t workspace_bytes(const Options& options, const Workers& workers);

 private:
  [[nodiscard]] Tensor as_matrix(const Tensor& share) const;

  Options options_;
  std::unique_ptr<Codec> codec_;
  Residuals residuals_;
  std::optional<BoundarySample> sample_{};  // of the current step
  CallTimes encode_times_{};
  CallTimes decode_times_{};
};

// Whether a codec is to be used for a boundary's messages: where its frame is smaller than the
// plain message, whose elements are of dtype `plain`, or where its setting says always.
[[nodiscard]] bool pays_at_boundary(const CodecSetting& setting,
                                    const MatrixShape& share,
                                    DType plain);

// The view of `elements` of a boundary tensor of C channels as a matrix: tokens by channels; where
// the tensor ranks' shares cut through tokens, equal parts of each token's channels by rank.
[[nodiscard]] MatrixShape share_shape(std::int64_t tokens, std::int64_t C, int tensor_size);

}  // namespace slackline
