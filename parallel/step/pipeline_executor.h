#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/tensor/stream.h"
#include "core/tensor/stream_times.h"
#include "model/loss_sum.h"
#include "model/stage.h"
#include "parallel/channel/channels.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/schedule/ops.h"
#include "parallel/schedule/slots.h"
#include "parallel/step/groups.h"
#include "parallel/step/pass_graphs.h"

namespace slackline {

class StepRehearsal;

// Runs a schedule: one loop over the rank's list of ops, which decides nothing. Owns the rank's
// chunks, and the slots and message channels of micro-batches in flight. Used by the rank's thread;
// slots of transfers under way also by the codecs'.
//
// Boundary tensors live in the slots: a receive writes the input of the chunk that will read it, a
// send reads the output of the chunk that made it. Where rows are not already cut over tensor
// ranks, each tensor rank sends its slice and the receivers gather the slices.
class PipelineExecutor {
 public:
  PipelineExecutor(Parameters& parameters,
                   const ModelConfig& config,
                   const ExecutorPlan& plan,
                   Groups& groups,
                   Channels& channels);

  // What a step works on.
  struct Work {
    StreamView stream;
    std::vector<MicroBatch> micro_batches;  // of this data rank, in order
    float dropout = 0.0F;
    std::uint64_t seed = 0;
    float scale = 1.0F;                     // of the loss whose gradients are made
    ParameterUse* use = nullptr;            // told of weights read and of finished gradients
    Gradients gradients = Gradients::fp32;  // none: forward passes only
    KeptMessages* keeps = nullptr;          // where messages are kept; null: nothing is
    StepRehearsal* rehearsal = nullptr;     // told when ops begin and end; null: it is none
  };

  // From now on passes are captured as CUDA graphs where they can be.
  void use_graphs() { graphs_.emplace(); }

  // Forward and backward of every micro-batch. Afterwards each gradient is this rank's part of it.
  // Returns the sum of the losses of this data rank's tokens on ranks of the last stage, 0 on
  // others.
  [[nodiscard]] double train(const Work& work);

  // The same sum, without gradients or dropout.
  // REQUIRES: as many micro-batches as the evaluation schedule has.
  [[nodiscard]] double evaluate(Work work);

  // What the last call of train computed and when, on the world's clock. An op's time has its
  // transfers over the tensor axis in it, and not the wait for its input.
  struct OpTime {
    schedule::Op op{};
    double begin = 0.0;
    double end = 0.0;
  };

  [[nodiscard]] std::vector<OpTime> op_times() const;

 private:
  // A micro-batch's place in memory and its messages.
  struct InFlight {
    InFlight(std::size_t bytes, Backing backing, MessageChannel channel)
        : slot(bytes, backing), messages(std::move(channel)) {}

    ActivationSlot slot;
    MessageChannel messages;  // last: transfers end before the memory that they use
  };

  // An op and its marks in times_.
  struct MarkedOp {
    schedule::Op op{};
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  double run(const schedule::Schedule& schedule, const schedule::SlotMap& slots, const Work& work);
  void execute(const schedule::Op& op, InFlight& at, const Work& work);
  void forward(const schedule::Op& op, InFlight& at, const Work& work);
  void backward(const schedule::Op& op, InFlight& at, const Work& work);
  // Makes a pass of a stage, or has its graph do so.
  void make(const schedule::Op& op,
            const InFlight& at,
            const Work& work,
            const std::function<void(const Pass&)>& body);
  // They stand around what an op computes; note_op is given what begin_op returned.
  [[nodiscard]] std::size_t begin_op(const schedule::Op& op, const Work& work);
  void note_op(const schedule::Op& op, const Work& work, std::size_t begin);
  [[nodiscard]] Pass pass_of(const schedule::Op& op, const Work& work);
  // Makes a slot the stage's; what other tensors there are sent from has gone then.
  void prepare(const Stage& stage, InFlight& at) const;
  void wait_for_all();
  Stage& stage_of(int chunk);

  ExecutorPlan plan_;
  schedule::SlotMap slots_;
  schedule::SlotMap evaluation_slots_;
  Groups* groups_;
  Channels* channels_;
  std::vector<Stage> stages_;  // this rank's chunks, in order
  std::vector<InFlight> in_flight_;
  StreamTimes times_;
  std::vector<MarkedOp> ops_;  // of the last call of train or evaluate
  LossSum losses_;
  std::optional<PassGraphs> graphs_{};
};

}  // namespace slackline
