#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/channel/boundary_codec.h"
#include "parallel/channel/channel_codecs.h"
#include "parallel/channel/codec_stream.h"
#include "parallel/channel/step_samples.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/pipeline_boundaries.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// The compressed boundaries of one rank: which of its sends and receives a plan compresses, and the
// codecs at this end of them. Codecs live as long as the run; plans may change between steps.
class BoundaryCodecs {
 public:
  BoundaryCodecs(const PipelineBoundaries::Options& options,
                 std::shared_ptr<const ChannelCodecs> maker);

  // Makes the codecs of what is compressed from now on. State of a boundary whose setting stays is
  // kept; that of others begins anew, but what a codec that ends still owes goes on to a codec of
  // the same boundary with the same error feedback, where there is one.
  void set_plan(const CompressionPlan& plan);

  // The codec at this rank's end of a send or receive; null where it travels plain.
  [[nodiscard]] BoundaryCodec* codec_of(const schedule::Op& op) const;

  // Returns where codecs run. REQUIRES: set_stream() was called since the last set_plan().
  [[nodiscard]] const CodecStream& stream() const { return *stream_; }

  void set_stream(const CodecStream& stream) { stream_ = stream; }

  // All codecs of sending ends, in the order of the schedule.
  [[nodiscard]] std::vector<BoundaryCodec*> senders() const;

  // Adds what each codec did since the last time.
  void take_times(std::vector<CodecTimes>& times);

  // Measures what this rank sends in the step that begins, until the samples are taken.
  void begin_sample();
  void take_samples(StepSamples& samples);

  [[nodiscard]] std::size_t workspace_bytes(const Workers& workers) const;

 private:
  [[nodiscard]] BoundaryCodec* find_or_make(const BoundaryEnd& end,
                                            std::vector<std::unique_ptr<BoundaryCodec>>& before);
  // The codec of each transfer that is compressed, at this rank's end of it.
  using ByTransfer = std::map<std::pair<schedule::TransferId, BoundaryEnd::Side>, BoundaryCodec*>;

  void hand_over(const ByTransfer& before);
  void hand_over_lazy(const std::vector<std::unique_ptr<BoundaryCodec>>& ended);

  PipelineBoundaries boundaries_;
  std::shared_ptr<const ChannelCodecs> maker_;
  // Each end has one. Phases of a boundary that have one setting share a codec and its state.
  std::vector<std::unique_ptr<BoundaryCodec>> codecs_{};
  ByTransfer by_transfer_{};
  std::optional<CodecStream> stream_{};
};

}  // namespace slackline
