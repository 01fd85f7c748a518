#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/stream.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "parallel/channel/channels.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/step/groups.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

// Sums gradients over the data axis and, where a tied table stands on two stages, over both: every
// sum in the order of docs/numerics.md. Buckets of gradients whose layers have ended travel
// while the last micro-batch's backward still runs; the rest in finish().
//
// With `replicate` each rank ends with all sums. With `zero1` a rank ends with its slice of each
// bucket, its optimizer updates that slice, and gather_weights() sends the new weights round while
// the next forward pass begins; before_use() waits for what it needs.
//
// Refers to parameters, groups and channels, which must outlive it. Used by the rank's thread.
class GradientReducer final : public ParameterUse {
 public:
  // `channels` have the sums that sum_channels() says.
  GradientReducer(const Parameters& parameters,
                  const ModelConfig& config,
                  const ReducerPlan& plan,
                  Groups& groups,
                  Channels& channels);

  // The sums of the rank's buckets. Refers to parameters and groups.
  [[nodiscard]] static std::vector<SumChannel::Options> sum_channels(const Parameters& parameters,
                                                                     const ModelConfig& config,
                                                                     const ReducerPlan& plan,
                                                                     const Groups& groups,
                                                                     std::uint64_t seed);

  [[nodiscard]] const std::vector<OptimizerPiece>& pieces() const { return pieces_; }

  // Of the last micro-batch's backward pass: submits buckets that are complete.
  void gradients_made(ModelPart part, int layer) override;

  // After the passes of a step: submits the rest and waits for all sums.
  void finish();

  // After the optimizer: other ranks need what this one updated. Does nothing under `replicate`.
  void gather_weights();

  void before_use(StreamView stream, ModelPart part, int layer) override;

  // Waits for every weight on its way.
  void finish_gather(StreamView stream);

 private:
  // A bucket and what is under way of it.
  struct Moving {
    GradientBucket bucket{};
    std::vector<GradientBucket::Unit> missing{};  // of its units, in the current step
    Transfer gather{};
  };

  void reduce(std::size_t bucket);
  void receive_weights(StreamView stream, Moving& moving);

  const Parameters* parameters_;
  ReducerPlan plan_;
  Groups* groups_;
  Channels* channels_;
  std::vector<Moving> moving_;
  std::vector<OptimizerPiece> pieces_;
};

}  // namespace slackline
