#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/channel/boundary_codecs.h"
#include "parallel/channel/channel.h"
#include "parallel/channel/gather_channel.h"
#include "parallel/channel/message_channel.h"
#include "parallel/channel/sum_channel.h"
#include "parallel/channel/tensor_channel.h"
#include "parallel/plan/codec_errors.h"
#include "parallel/plan/sampled_steps.h"

namespace slackline {

// All channels of one rank: the messages of its pipeline, the sums of its layers over tensor ranks,
// those of its gradients and the gathers of weights before their use. Has them obey the run's
// plans, step by step, and owns the stream of their codecs, with the thread it runs on. Called by
// the rank's thread between steps, when no transfer is under way, but for begin_passes(), tensor(),
// and what begins and finishes sums and gathers. An exception in the middle of a step has to be
// told to the other ranks (fail()) before this ends: transfers that codecs have not begun never
// end.
class Channels {
 public:
  struct Options {
    PlanHistory plans{};   // from step 1 on, or none: nothing is ever compressed
    CodecErrors errors{};  // known from before
    SampledSteps sampled{};
    PipelineBoundaries boundaries;
    Workers workers{};
    bool sequence_parallel = false;
    std::uint64_t seed = 0;
    CodecMaker codecs = make_real_codec;
  };

  // `sums`: of gradients, in the order of the sync plan; `gathers`: of buckets in slots.
  Channels(const Options& options,
           const ChannelPeers& peers,
           const std::vector<SumChannel::Options>& sums,
           const std::vector<GatherChannel::Options>& gathers = {});

  ~Channels() { stop(); }

  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  // No codec begins afterwards, and none is at work: before slots, weights and message channels go,
  // which codecs use. A step that an exception cut short may have left some under way.
  void stop();

  // A channel for the micro-batches that stand in one place one after another. Refers to this.
  [[nodiscard]] MessageChannel message_channel() const { return MessageChannel(routes_); }

  // What the messages that follow belong to.
  void begin_passes(const PassesOfStep& passes) { routes_.passes = passes; }

  // Exchanges of layers over tensor ranks.
  [[nodiscard]] TensorChannel& tensor() { return tensor_; }

  // Begins a sum, by its number in the constructor's `sums`: once a step, or in each pass.
  void begin_sum(std::size_t bucket);

  void finish_sum(std::size_t bucket) { sums_[bucket].finish(); }

  // Whether a gather, by its number in the constructor's `gathers`, travels coded. If not, it is
  // not these channels'.
  [[nodiscard]] bool codes_gather(std::size_t gather) const { return gathers_[gather].is_coded(); }

  void begin_gather(std::size_t gather);

  void finish_gather(std::size_t gather) { gathers_[gather].finish(); }

  // Puts the plan of this step in force. All ranks call it before the passes of the step.
  void begin_step(std::int64_t step);

  // Sets where sums keep what this rank brings, until it is called anew.
  void keep_messages(const std::optional<SumChannel::Keeping>& keeping) { keeping_ = keeping; }

  // Puts the plan alone in force, before state of that step is loaded.
  void put_in_force(std::int64_t step);

  // The plan of the step that began last, until plans change; null where nothing is ever
  // compressed.
  [[nodiscard]] const PlanFromStep* in_force() const;

  // Returns the step from which it is in force; 0: none is.
  [[nodiscard]] std::int64_t in_force_from() const { return in_force_from_; }

  // Says whether another plan than is in force comes into force with the step.
  [[nodiscard]] bool begins_plan(std::int64_t step) const {
    return !options_.plans.empty() && plan_at(options_.plans, step).from_step != in_force_from_;
  }

  // Whether this step samples what is compressed.
  [[nodiscard]] bool samples() const { return samples_; }

  [[nodiscard]] const PlanHistory& plans() const { return options_.plans; }

  // Changes what is compressed from a step on that has not begun.
  // REQUIRES: later than all plans so far; all ranks call it before that step, with the same plan.
  void add_plan(PlanFromStep plan);

  // What codecs were measured to lose so far; the same on all ranks, and saved with the plans.
  [[nodiscard]] CodecErrors& errors() { return options_.errors; }

  // What was measured in the step that ended last, where that was a sampled one; what
  // ranks have to tell each other for it begins to travel, which all ranks call this for.
  [[nodiscard]] std::optional<StepSamples> take_samples();

  // What codecs did since the last time it was asked.
  [[nodiscard]] std::vector<CodecTimes> take_times();

  // The state of every codec and residual of this rank; views. Blocks until codecs rest.
  [[nodiscard]] std::vector<ChannelState> state();

  // Keeps a copy of the state, and goes back to it: steps that are skipped, and evaluation, leave
  // no trace.
  void keep_state();
  void restore_state();

 private:
  [[nodiscard]] bool compresses() const {
    return in_force() != nullptr && in_force()->plan.compresses_anything();
  }

  // All channels, in the order of their state.
  [[nodiscard]] std::vector<Channel*> all();
  // Waits for what codecs do after their messages have gone.
  void rest();

  Options options_;
  BoundaryCodecs boundaries_;
  MessageRoutes routes_;
  std::vector<SumChannel> sums_;
  std::vector<GatherChannel> gathers_;
  TensorChannel tensor_;
  std::optional<SumChannel::Keeping> keeping_{};
  std::uint64_t step_ = 0;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Worker> worker_;  // the stream's; shared with transfers; null: nothing compresses
  std::int64_t in_force_from_ = 0;  // the plan's from_step; 0: none yet
  bool samples_ = false;            // in the current step
  std::vector<Buffer> kept_;
};

}  // namespace slackline
