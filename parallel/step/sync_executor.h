#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/stream.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "parallel/channel/channels.h"
#include "parallel/step/groups.h"
#include "parallel/sync/sync_plan.h"

namespace slackline {

// Runs a sync plan: sums and gathers of one rank's gradients and weights, each where the list says,
// and every sum in the order of docs/numerics.md. The model's callbacks drive it: gradients must be
// made as the plan expects them, else the step ends with an Error that names both. Sums travel
// while the last micro-batch's backward still runs; weights while the next forward pass begins,
// which waits for what it reads.
//
// Refers to parameters, groups and channels, which must outlive it. Used by the rank's thread.
class SyncExecutor final : public ParameterUse {
 public:
  // `channels` have the sums of sum_channels().
  SyncExecutor(const Parameters& parameters,
               const SyncPlan& plan,
               Groups& groups,
               Channels& channels);

  // What channels have to add up. Refers to all of these.
  [[nodiscard]] static std::vector<SumChannel::Options> sum_channels(const Parameters& parameters,
                                                                     const SyncPlan& plan,
                                                                     const RankPlan& rank,
                                                                     const Groups& groups,
                                                                     std::uint64_t seed);

  [[nodiscard]] const SyncPlan& plan() const { return plan_; }

  // Submits what is due, in the backward pass of the last micro-batch.
  void gradients_made(ModelPart part, int layer) override;

  // Submits the other sums, after the passes of a step, and waits for all.
  void finish_sums();

  // Begins, after the optimizer, what the plan gathers. before_use() waits for a part's weights,
  // finish_gathers() for all.
  void begin_gathers();
  void before_use(StreamView stream, ModelPart part, int layer) override;
  void finish_gathers(StreamView stream);

 private:
  // Submits the next op of gradients in the list.
  void begin_next();
  // Waits for the sum of a bucket, each rank's slice of it, and for what other ranks have of it.
  void gather_sum(const SyncOp& op);
  void receive_weights(StreamView stream, std::size_t bucket);

  const Parameters* parameters_;
  SyncPlan plan_;
  Groups* groups_;
  Channels* channels_;
  // How many the current step has had of plan_.made, of plan_.ops, and of the channels' sums.
  std::size_t num_made_ = 0;
  std::size_t next_op_ = 0;
  std::size_t num_sums_ = 0;
  std::vector<Transfer> gathers_;  // of buckets' weights, under way
};

}  // namespace slackline
