#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "compress/codec_times.h"
#include "compress/residuals.h"
#include "parallel/channel/boundary_sample.h"
#include "parallel/channel/channel_state.h"
#include "parallel/channel/codec_maker.h"
#include "parallel/plan/pipeline_boundaries.h"

namespace slackline {

// One end of one direction of a pipeline boundary whose messages are compressed: this rank's share
// of the boundary tensor, seen as a matrix of tokens by channels. The sending end holds what goes
// from message to message; the receiving end holds nothing but scratch. One thread at a time.
class BoundaryCodec {
 public:
  enum class Feedback { on, off };  // off: the message stands for itself, as in evaluation

  BoundaryCodec(const BoundaryEnd& end, const CodecMaker& maker);

  [[nodiscard]] const BoundaryEnd& end() const { return end_; }

  [[nodiscard]] std::size_t frame_bytes() const { return codec_->frame_bytes(); }

  // What a sending rank has: its share of the boundary tensor, and where a gradient is sent, its
  // share of the input of the stage that sends.
  struct Outgoing {
    Tensor share{};
    Tensor input{};
  };

  // Calls return when done. The sending end calls these; `frame` is (frame_bytes) of u8. After
  // encode() the frame may be sent; with feedback on, settle() then brings the residual up to date.
  void encode(StreamView stream,
              const Outgoing& outgoing,
              const MessageKey& key,
              const Tensor& frame,
              Feedback feedback);
  void settle(StreamView stream, const MessageKey& key, const Tensor& frame);

  // Overwrites `share`. The receiving end calls it.
  void decode(StreamView stream, const Tensor& frame, const Tensor& share);

  // Whether gradients are masked by what the activations' codec kept; if so, mask() takes those of
  // `share` back through `frame`: zero where it left the activation out, else scaled as it was.
  [[nodiscard]] bool masks() const { return codec_->gradient() == CodecGradient::masked; }

  void mask(StreamView stream, const Tensor& frame, const Tensor& share);

  [[nodiscard]] const Codec& codec() const { return *codec_; }

  // Takes over, at the sending end, what another codec of the boundary owes of a micro-batch; with
  // lazy feedback, of all. REQUIRES: the same error feedback.
  void take_residual(int micro_batch, BoundaryCodec& from) {
    residuals_.take(micro_batch, from.residuals_);
  }

  // Sets what is owed of all other micro-batches to zero. REQUIRES: immediate feedback.
  void keep_residuals_of(const std::set<int>& micro_batches);

  // Measures, at the sending end, the messages with feedback on until the sample is taken.
  void begin_sample(BoundarySample::Classes classes) {
    sample_.emplace(std::move(classes), end_.setting.error_feedback);
  }

  [[nodiscard]] bool is_sampled() const { return sample_.has_value(); }

  [[nodiscard]] std::optional<BoundarySample> take_sample() {
    return std::exchange(sample_, std::nullopt);
  }

  // Returns what the calls took since it was asked last.
  [[nodiscard]] CodecTimes take_times();

  // Adds views of what goes from message to message, under `label` (boundary_label()).
  void add_state(const std::string& label,
                 const StateRanks& ranks,
                 std::vector<ChannelState>& list);

 private:
  [[nodiscard]] Tensor as_matrix(const Tensor& share) const;

  BoundaryEnd end_;
  bool widens_;  // a boundary that is not f32 passes through a copy that is
  std::unique_ptr<Codec> codec_;
  Residuals residuals_;
  std::optional<BoundarySample> sample_{};  // of the current step
  CallTimes encode_times_{};
  CallTimes decode_times_{};
};

}  // namespace slackline
