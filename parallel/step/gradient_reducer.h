#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor/stream.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "parallel/channel/codec_stream.h"
#include "parallel/channel/compressed_bucket.h"
#include "parallel/channel/kept_messages.h"
#include "parallel/channel/step_samples.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/step/groups.h"
#include "parallel/sync/bucket_compression.h"
#include "parallel/sync/gradient_buckets.h"

namespace slackline {

struct StepCosts;

// Sums gradients over the data axis and, where a tied table stands on two stages, over both: every
// sum in the order of docs/numerics.md. Buckets of gradients whose layers have ended travel
// while the last micro-batch's backward still runs; the rest in finish().
//
// With `replicate` each rank ends with all sums. With `zero1` a rank ends with its slice of each
// bucket, its optimizer updates that slice, and gather_weights() sends the new weights round while
// the next forward pass begins; before_use() waits for what it needs.
//
// Refers to parameters and groups, which must outlive it. Used by the rank's thread.
class GradientReducer final : public ParameterUse {
 public:
  GradientReducer(const Parameters& parameters,
                  const ModelConfig& config,
                  const ReducerPlan& plan,
                  Groups& groups);

  [[nodiscard]] const std::vector<OptimizerPiece>& pieces() const { return pieces_; }

  // Compresses what the plan says from the next step on. Buckets whose codecs and matrices stay
  // keep their state. In others each matrix that stays compressed keeps what is owed to it, and its
  // codec's state where its setting stays; the rest begins anew.
  void set_plan(const CompressionPlan& plan,
                std::uint64_t seed,
                const StepCosts* rehearsed = nullptr);

  void set_codec_stream(const CodecStream& stream) { codec_stream_ = stream; }

  // The compressed sums of all buckets, in order.
  [[nodiscard]] std::vector<CompressedSum*> compressed_sums();

  // Measures the compressed sums of the step that begins, until the samples are taken; what ranks
  // brought then travels. All ranks call both.
  void begin_sample();
  void take_samples(StepSamples& samples);

  // Where the step that begins keeps what this rank brings to sums that may be compressed, in the
  // order of `stream`: the matrices that are submitted first.
  struct Keeping {
    StreamView stream;
    KeptMessages* messages = nullptr;
  };

  void keep_messages(const std::optional<Keeping>& keeping) { keeping_ = keeping; }

  // Names the messages of the passes that follow.
  void begin_step(std::uint64_t step) { key_.step = step; }

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
    std::optional<CompressedBucket> compressed{};
    Transfer reduction{};
    Transfer gather{};
  };

  void reduce(Moving& moving);
  void keep_messages_of(const GradientBucket& bucket);
  void receive_weights(StreamView stream, Moving& moving);
  [[nodiscard]] bool is_fused(const GradientBucket& bucket) const;
  [[nodiscard]] Communicator& group_of(const GradientBucket& bucket) const;
  [[nodiscard]] ReductionPlace place() const;
  [[nodiscard]] BucketPlace place_of(const GradientBucket& bucket) const;

  const Parameters* parameters_;
  ReducerPlan plan_;
  Groups* groups_;
  std::optional<CodecStream> codec_stream_;
  std::optional<Keeping> keeping_{};
  MessageKey key_{};
  std::vector<Moving> moving_;
  std::vector<OptimizerPiece> pieces_;
};

}  // namespace slackline
