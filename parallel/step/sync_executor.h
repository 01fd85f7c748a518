#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/tensor/stream.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "parallel/channel/channels.h"
#include "parallel/step/bucket_memory.h"
#include "parallel/step/groups.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Runs a sync plan: sums and gathers of one rank's gradients and weights, each where the list says,
// and every sum in the order of docs/numerics.md. The model's callbacks drive it: weights must be
// read and gradients made as the plan expects them, else the step ends with an Error that names
// both. Sums travel while the last micro-batch's backward still runs, those of every pass while the
// next layer's does; updated weights while the next forward pass begins, which waits for what it
// reads. Weights that ranks share out are gathered one unit ahead of the pass, into slots.
//
// Refers to plan, memory, groups and channels, which must outlive it. Used by the rank's thread.
class SyncExecutor final : public ParameterUse {
 public:
  // `channels` have the sums of sum_channels() and the gathers of gather_channels().
  SyncExecutor(const SyncPlan& plan,
               const BucketMemory& memory,
               Groups& groups,
               Channels& channels);

  // What channels have to add up. Refers to all of these.
  [[nodiscard]] static std::vector<SumChannel::Options> sum_channels(const SyncPlan& plan,
                                                                     const BucketMemory& memory,
                                                                     const RankPlan& rank,
                                                                     const Groups& groups,
                                                                     std::uint64_t seed);

  // Channels may have to gather each bucket that passes have in a slot. Refers to all of these.
  [[nodiscard]] static std::vector<GatherChannel::Options> gather_channels(
      const SyncPlan& plan, const BucketMemory& memory, const Groups& groups, Backing backing);

  enum class Passes { train, evaluate };

  // Before the passes of a step, or of an evaluation.
  void begin_passes(Passes passes);

  void before_norm(StreamView stream, ModelPart part, int layer) override;
  void before_use(StreamView stream, ModelPart part, int layer) override;
  void after_use(StreamView stream, ModelPart part, int layer) override;
  void before_gradients(StreamView stream, ModelPart part, int layer) override;
  void gradients_made(StreamView stream, ModelPart part, int layer, bool last) override;

  // Submits the other sums, after the passes of a step, and waits for all.
  void finish_sums(StreamView stream);

  // Begins, after the optimizer, what the plan gathers; passes wait for what they read,
  // finish_gathers() for all.
  void begin_gathers();
  void finish_gathers(StreamView stream);

 private:
  using Unit = GradientBucket::Unit;

  // Ops of one bucket, each of which begins when the one before has ended: by itself, but where an
  // op is a channel's, and on a device, whose copies to the host are made when an op is submitted;
  // there when somebody waits.
  class Chain {
   public:
    void begin(std::vector<const SyncOp*> ops, SyncExecutor& executor);
    // Ends what is under way and begins what follows; nothing where nothing does.
    void advance(SyncExecutor& executor);
    // Waits for all but the last, which is under way then.
    void finish_but_last(SyncExecutor& executor);

    [[nodiscard]] bool is_under_way() const { return under_way_; }

    void finish(SyncExecutor& executor);

   private:
    void begin_next(SyncExecutor& executor);
    void finish_begun(SyncExecutor& executor);

    std::vector<const SyncOp*> ops_;        // still to be begun
    std::vector<Transfer> transfers_{};     // begun; several that follow each other
    std::optional<std::size_t> channel_{};  // whose sum is begun
    bool under_way_ = false;
  };

  // Gradients that a slot has, on their way to their owners.
  struct SlotUse {
    std::size_t bucket = 0;
    Unit unit{};
  };

  // `follows`: null, or what has to end before.
  [[nodiscard]] Transfer submit(const SyncOp& op, const Transfer* follows = nullptr);
  [[nodiscard]] bool may_follow_each_other(const std::vector<const SyncOp*>& ops) const;
  // The channel's number that has the op; none where it is not theirs.
  [[nodiscard]] std::optional<std::size_t> channel_of(const SyncOp& op) const;
  [[nodiscard]] std::vector<const SyncOp*> ops_of(SyncOp::Begin begin,
                                                  std::size_t bucket,
                                                  const Unit& unit) const;
  // Submits the next op of a step's list, once what passes have of its bucket in a slot is added.
  void begin_next(StreamView stream);
  void receive_weights(StreamView stream, std::size_t bucket);

  // Buckets that a unit's passes have in slots.
  [[nodiscard]] std::vector<std::size_t> slotted(const Unit& unit, SyncOp::State state) const;
  void expect_use(const Unit& unit);
  // Gathers the weights that are used next, if their slots are free.
  void look_ahead(StreamView stream);
  void begin_use(StreamView stream, const Unit& unit);
  void finish_reduction(StreamView stream, std::size_t slot);

  const SyncPlan* plan_;
  const BucketMemory* memory_;
  Groups* groups_;
  Channels* channels_;
  std::vector<const SyncOp*> step_ops_;  // those of the step's end, as they are submitted
  std::vector<std::optional<std::size_t>> channel_sums_;  // of the plan's ops, by number
  // These count what the current step has had of plan_->made, and of step_ops_.
  std::size_t num_made_ = 0;
  std::size_t next_op_ = 0;
  std::vector<Chain> sums_;     // of buckets at the step's end
  std::vector<Chain> gathers_;  // of buckets' updated weights, under way

  const std::vector<Unit>* used_;  // as the passes under way read weights
  std::size_t num_used_ = 0;
  bool next_is_begun_ = false;  // gathering what is used next
  std::vector<bool> weight_slot_is_taken_;
  std::vector<std::optional<SlotUse>> gradient_slots_;
  std::vector<std::optional<std::size_t>> channel_gathers_;  // of buckets, by number
  std::vector<Chain> passes_;               // of buckets: what the passes under way gather
  std::vector<Chain> reductions_;           // and reduce
  std::vector<std::size_t> made_before_{};  // buckets whose gradients a pass made last
  std::vector<bool> is_written_;            // whether a step has written a bucket's gradient share
  std::vector<bool> input_is_written_;      // likewise of its input share
};

}  // namespace slackline
