#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/tensor/stream.h"
#include "core/tensor/stream_times.h"
#include "optim/adamw_optimizer.h"
#include "parallel/channel/channels.h"
#include "parallel/channel/kept_messages.h"
#include "parallel/mesh/rank_plan.h"
#include "parallel/step/bucket_memory.h"
#include "parallel/step/pipeline_executor.h"
#include "parallel/step/step_agreement.h"
#include "parallel/step/step_rehearsal.h"
#include "parallel/step/sync_executor.h"

namespace slackline {

// One rank's share of a model in training: parameters, activations, optimizer state, and a step of
// them over the mesh. Owns all of it; the groups must outlive it. Every rank of the world
// makes one of the same job and calls the same, in the same order.
class MeshModel {
 public:
  // What makes a rank's plans and its channels' codecs: the same on every rank of the world.
  struct Makers {
    std::function<RankPlan(const MeshJob& job, const MeshPlace& place)> rank_plan = make_rank_plan;
    std::function<SyncPlan(const std::vector<Parameter>& parameters, const RankPlan& rank)>
        sync_plan = make_sync_plan;
    CodecMaker codecs = make_real_codec;
  };

  struct Options {
    MeshJob job{};
    OptimizerConfig optimizer{};
    std::uint64_t seed = 1234;  // of dropout
    int num_threads = 1;
    // Set on the rehearsal device. Nothing is learned then: loss and norm mean nothing, and memory
    // is touched as far as messages go.
    std::optional<StepRehearsal::Costs> rehearsal{};
    PlanHistory compression{};   // empty: nothing is ever compressed
    CodecErrors codec_errors{};  // known from before
    SampledSteps sampled{};      // whose compressed messages are measured
    bool cuda_graphs = false;    // passes become graphs where they can. REQUIRES: device cuda
    bool stream_waits = false;   // for copies on the host, where ranks are processes
    bool may_skip = false;       // steps that are not finite: codecs' state is kept for that
    Makers makers{};             // a rehearsal has codecs of its own
  };

  // Allocates; weights are undefined until they are initialized, or loaded and published. Nothing
  // travels yet. REQUIRES: the groups are of the job's mesh.
  MeshModel(const Options& options, Groups& groups);
  ~MeshModel();
  MeshModel(const MeshModel&) = delete;
  MeshModel& operator=(const MeshModel&) = delete;

  [[nodiscard]] Groups& groups() const { return *groups_; }

  [[nodiscard]] const MeshJob& job() const { return options_.job; }

  [[nodiscard]] const Options& options() const { return options_; }

  // Makes what channels code with; a rehearsal has codecs of its own.
  [[nodiscard]] CodecMaker codec_maker() const {
    return rehearsal_ ? rehearsal_->codec_maker() : options_.makers.codecs;
  }

  [[nodiscard]] StreamView stream() { return stream_; }

  [[nodiscard]] Parameters& parameters() { return parameters_; }

  [[nodiscard]] const ModelSlice& slice() const { return plan_.slice; }

  [[nodiscard]] AdamwOptimizer& optimizer() { return optimizer_; }

  [[nodiscard]] const SyncPlan& sync_plan() const { return sync_plan_; }

  [[nodiscard]] const BucketMemory& memory() const { return memory_; }

  // What this rank's optimizer updates, in the order of optimizer().tensors().
  [[nodiscard]] const std::vector<OptimizerPiece>& pieces() const { return sync_plan_.owned; }

  // Sets every weight to its initial value. All ranks call it.
  void initialize(std::uint64_t seed);

  // Gives other ranks, and what passes read, the weights that somebody wrote into
  // optimizer().tensors(). All ranks call it. What is begun is waited for by the next pass.
  void publish_weights();
  void begin_publishing();

  [[nodiscard]] StepAgreement& agreement() { return agreement_; }

  // The passes of a step and every sum over ranks: afterwards the gradients of this rank's pieces
  // are of the mean loss of the global batch. `wants_stop`, called once when the passes have ended,
  // asks all ranks to stop. The facts returned are the same on all ranks; their loss is that mean.
  [[nodiscard]] StepFacts make_gradients(std::vector<MicroBatch> micro_batches,
                                         const std::function<bool()>& wants_stop = {});

  // Who gives other ranks, and what passes read, the weights of an update.
  enum class Publishing { update, caller };

  // The optimizer's update, with what make_gradients returned. New weights may still be on their
  // way to other ranks afterwards; the next pass waits for them.
  void update(double lr, double gradient_norm, Publishing publishing = Publishing::update);

  // Mean loss of a global batch without gradients or dropout, and stop requests.
  [[nodiscard]] StepFacts evaluate(std::vector<MicroBatch> micro_batches, bool stop = false);

  // What the last step computed and when, on the world's clock.
  struct StepTimes {
    std::vector<PipelineExecutor::OpTime> ops{};
    double norm_begin = 0.0;  // squares of this rank's gradients
    double norm_end = 0.0;
    bool updated = false;  // false in a step that is skipped; its times below are of another step
    double update_begin = 0.0;
    double update_end = 0.0;
    std::vector<CodecTimes> codecs{};  // of the step's messages
  };

  [[nodiscard]] const StepTimes& step_times() const { return step_times_; }

  // Takes the place of update(): the step leaves no trace, in codecs either.
  // REQUIRES: Options::may_skip.
  void skip();

  // Says whether each step, from the next one on, keeps its messages instead of those of the step
  // before. Makes no difference to what is sent or learned. REQUIRES: not on the rehearsal device.
  void keep_messages(bool keeps) { keeps_messages_ = keeps; }

  [[nodiscard]] KeptMessages& kept_messages() { return kept_messages_; }

  [[nodiscard]] Channels& channels() { return channels_; }

  [[nodiscard]] const Channels& channels() const { return channels_; }

  // Waits until every weight of this rank is the newest. All ranks call it, or the next pass.
  void finish_gather() {
    sync_.finish_gathers(stream_);
    stream_.synchronize();
  }

  // Throws where ranks that must have the same weights differ (check_sync). All ranks call it.
  void require_sync();

 private:
  // How many passes of a kind a plan has had.
  struct Settling {
    std::int64_t plan = -1;  // by where it came into force; -1: none
    int passes = 0;
    bool streams_waited = false;
  };

  void choose_who_waits(Settling& passes);
  void let_thread_wait();
  void queue_update(double lr, double gradient_norm);
  [[nodiscard]] double tokens_of_step() const;
  // Copies tokens and targets to the CUDA device, where ops read them.
  void bring_to_device(std::vector<MicroBatch>& micro_batches);
  [[nodiscard]] PipelineExecutor::Work work_of(std::vector<MicroBatch> micro_batches);

  Options options_;
  Groups* groups_;
  RankPlan plan_;
  std::optional<StepRehearsal> rehearsal_;
  Stream stream_;
  Parameters parameters_;
  SyncPlan sync_plan_;
  BucketMemory memory_;
  AdamwOptimizer optimizer_;
  Channels channels_;
  PipelineExecutor executor_;
  SyncExecutor sync_;
  StepAgreement agreement_;
  Buffer tokens_;         // of the step's micro-batches, on a CUDA device
  Buffer pinned_tokens_;  // the same, on their way there: nothing waits for the stream
  KeptMessages kept_messages_;
  bool keeps_messages_ = false;

  Settling training_;
  Settling evaluation_;
  StepTimes step_times_;
  StreamTimes update_times_;     // of the last update, on a device where it is queued
  bool queues_updates_ = false;  // there is one
  double queued_seconds_ = 0.0;  // of the one before it
};

}  // namespace slackline
