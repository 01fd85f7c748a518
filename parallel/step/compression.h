#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/region.h"
#include "core/tensor/buffer.h"
#include "core/tensor/stream.h"
#include "parallel/channel/pipeline_compression.h"
#include "parallel/channel/step_samples.h"
#include "parallel/plan/codec_errors.h"
#include "parallel/plan/sampled_steps.h"
#include "parallel/step/gradient_reducer.h"

namespace slackline {

// A piece of what compression carries from step to step on one rank, for checkpoints.
struct CompressionState {
  std::string name;    // residual/<site>/<tensor, or layers before the boundary>[.right_factor]
  Tensor data{};       // f32
  Shape logical{};     // of the tensor it is a part of
  Region region{};     // that part
  LocalPlace place{};  // of the part in `data`
  std::optional<std::int64_t> worker{};  // where it differs from data rank to data rank
  int num_workers = 1;                   // how many there are
  bool saved = true;                     // by this rank: others may have the same
  bool sums = false;  // what all workers hold adds up to what is owed (residuals of gradients)
};

// Names the state of a boundary's codecs behind residual/. `place` is the site and how many layers
// stand before the boundary, so that state stays where it belongs when stages are cut anew. Phases
// that have codecs of their own number them in the order of the schedule: "pipeline_forward/3",
// then "pipeline_forward/3+2".
[[nodiscard]] std::string boundary_label(const std::string& place, int number);

// Everything that compresses on one rank: obeys the run's plans, step by step. Owns the codecs'
// stream, with the thread it runs on, and the boundaries' codecs; those of gradients belong to the
// reducer, which it tells the plan. Called by the rank's thread between steps, when no transfer is
// under way. An exception in the middle of a step has to be told to the other ranks (fail()) before
// this ends: transfers that codecs have not begun never end.
class Compression {
 public:
  struct Options {
    PlanHistory plans{};
    CodecErrors errors{};  // known from before
    SampledSteps sampled{};
    PipelineBoundaries::Options pipeline{};
    Workers workers{};
    std::uint64_t seed = 0;
  };

  // REQUIRES: plans from step 1 on, or none. `reducer` and `groups` outlive this.
  Compression(const Options& options, GradientReducer& reducer, const Groups& groups);
  ~Compression();
  Compression(const Compression&) = delete;
  Compression& operator=(const Compression&) = delete;

  // Puts the plan of this step in force. All ranks call it before the passes of the step.
  void begin_step(std::int64_t step);

  // The plan alone: before state of that step is loaded.
  void put_in_force(std::int64_t step);

  // Null while boundaries travel plain.
  [[nodiscard]] PipelineCompression* pipeline();

  // The plan of the step that began last, until plans change; null where nothing is ever
  // compressed.
  [[nodiscard]] const PlanFromStep* in_force() const;

  // Where it came into force; 0: none has.
  [[nodiscard]] std::int64_t in_force_from() const { return in_force_from_; }

  // Whether this step samples what is compressed.
  [[nodiscard]] bool samples() const { return samples_; }

  [[nodiscard]] const PlanHistory& plans() const { return options_.plans; }

  // Changes what is compressed from a step on that has not begun.
  // REQUIRES: later than all plans so far; all ranks call it before that step, with the same plan.
  void add_plan(PlanFromStep plan);

  // What codecs were measured to lose so far; the same on all ranks, and saved with the plans.
  [[nodiscard]] CodecErrors& errors() { return errors_; }

  // What was measured in the step that ended last, where that was a sampled one; what
  // ranks have to tell each other for it begins to travel, which all ranks call this for.
  [[nodiscard]] std::optional<StepSamples> take_samples();

  // What codecs did since the last time it was asked.
  [[nodiscard]] std::vector<CodecTimes> take_times();

  // The state of every codec and residual of this rank; views. Blocks until codecs rest.
  [[nodiscard]] std::vector<CompressionState> state();

  // Keeps a copy of the state, and goes back to it: steps that are skipped, and evaluation, leave
  // no trace.
  void keep_state();
  void restore_state();

  [[nodiscard]] bool is_active() const {
    return in_force() != nullptr && in_force()->plan.compresses_anything();
  }

 private:
  // Waits for what codecs do after their messages have gone.
  void rest();
  void add_boundary(BoundaryCodec& codec,
                    const std::string& label,
                    std::vector<CompressionState>& list);
  void add_gradients(CompressedSum& sum, std::vector<CompressionState>& list);

  Options options_;
  GradientReducer* reducer_;
  const Groups* groups_;
  PipelineCompression pipeline_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Worker> worker_;  // the stream's; shared with transfers; null: nothing compresses
  std::int64_t in_force_from_ = 0;  // the plan's from_step; 0: none yet
  bool samples_ = false;            // in the current step
  std::vector<Buffer> kept_;
  CodecErrors errors_;
};

}  // namespace slackline
