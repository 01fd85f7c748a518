#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/channel/boundary_codec.h"
#include "parallel/channel/channel.h"
#include "parallel/plan/pipeline_boundaries.h"
#include "parallel/schedule/ops.h"

namespace slackline {

// The compressed boundaries of one rank: which of its sends and receives a plan compresses, and the
// codecs at this end of them. Codecs live as long as the run; plans may change between steps.
class BoundaryCodecs final : public Channel {
 public:
  explicit BoundaryCodecs(PipelineBoundaries boundaries) : boundaries_(std::move(boundaries)) {}

  // State of a boundary whose setting stays is kept; that of others begins anew, but what a codec
  // that ends still owes goes on to a codec of the same boundary with the same error feedback,
  // where there is one.
  void obey(const CompressionPlan& plan, const CodecMaker& maker) override;

  // The codec at this rank's end of a send or receive; null where it travels plain.
  [[nodiscard]] BoundaryCodec* at(const schedule::Op& op) const;

  // Returns where codecs run. REQUIRES: run_codecs_on() was called since the last obey().
  [[nodiscard]] const CodecStream& stream() const { return *stream_; }

  void run_codecs_on(const CodecStream& at) override { stream_ = at; }

  [[nodiscard]] std::size_t codec_workspace(const Workers& workers) const override;
  void begin_sample() override;
  void take_samples(StepSamples& samples) override;
  void take_times(std::vector<CodecTimes>& times) override;
  void add_state(const StateRanks& ranks, std::vector<ChannelState>& list) override;

 private:
  [[nodiscard]] BoundaryCodec* find_or_make(const BoundaryEnd& end,
                                            const CodecMaker& maker,
                                            std::vector<std::unique_ptr<BoundaryCodec>>& before);
  // All codecs of sending ends, in the order of the schedule.
  [[nodiscard]] std::vector<BoundaryCodec*> senders() const;
  // The codec of each transfer that is compressed, at this rank's end of it.
  using ByTransfer = std::map<PipelineBoundaries::Key, BoundaryCodec*>;

  void hand_over(const ByTransfer& before);
  void hand_over_lazy(const std::vector<std::unique_ptr<BoundaryCodec>>& ended,
                      const ByTransfer& before);
  // What a codec owes of micro-batches that others send now, or that travel plain, is dropped.
  void drop_what_others_send();

  PipelineBoundaries boundaries_;
  // Each end has one. Phases of a boundary that have one setting share a codec and its state.
  std::vector<std::unique_ptr<BoundaryCodec>> codecs_{};
  ByTransfer by_transfer_{};
  std::optional<CodecStream> stream_{};
};

}  // namespace slackline
