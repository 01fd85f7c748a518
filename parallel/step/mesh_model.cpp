#include "parallel/step/mesh_model.h"

#include <cstring>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/cuda/cuda_memory.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/log.h"
#include "parallel/mesh/executor_bytes.h"
#include "parallel/step/sync_check.h"

namespace slackline {

namespace {

Device device_of(const MeshModel::Options& options) {
  return options.rehearsal ? Device::rehearsal : options.job.device;
}

RankPlan plan_of(const MeshModel::Options& options, const Groups& groups) {
  RankPlan plan = options.makers.rank_plan(options.job, place_of(groups));
  plan.executor.activations = backing_of(device_of(options));
  return plan;
}

Parameters::Options parameter_options(const MeshModel::Options& options,
                                      const RankPlan& plan,
                                      Device device) {
  const bool shared = plan.sync.shares_memory();
  return {.compute = options.job.precision,
          .slice = plan.slice,
          .device = device,
          .biases = shared ? Parameters::Biases::before_norms : Parameters::Biases::with_matrices,
          .memory = shared ? Parameters::Memory::others : Parameters::Memory::own};
}

std::vector<OptimizedTensor> optimized_pieces(const SyncPlan& plan,
                                              const BucketMemory& memory,
                                              const OptimizerConfig& config) {
  std::vector<OptimizedTensor> tensors;
  tensors.reserve(plan.owned.size());
  for (const OptimizerPiece& piece : plan.owned) {
    const bool decay = decays(piece.parameter->spec.role, config.decay_embeddings);
    tensors.push_back(memory.optimized(piece, decay ? WeightDecay::yes : WeightDecay::no));
  }
  return tensors;
}

// Makes the optimizer of what this rank updates, and shows parameters that it updates as a whole
// their second moments.
AdamwOptimizer optimizer_of(const MeshModel::Options& options,
                            const SyncPlan& plan,
                            const BucketMemory& memory,
                            Parameters& parameters) {
  AdamwOptimizer optimizer(
      optimized_pieces(plan, memory, options.optimizer), options.optimizer, parameters.device());
  for (std::size_t i = 0; i < optimizer.tensors().size(); ++i) {
    const OptimizedTensor& tensor = optimizer.tensors()[i];
    const OptimizerPiece& piece = plan.owned[i];
    const Shape& shape = piece.parameter->shard.shape;
    if (tensor.is_trained() && piece.range.count() == shape.num_elements()) {
      parameters.at(piece.parameter->spec.name).second_moment =
          optimizer.second_moment(tensor.name).reshaped(shape);
    }
  }
  return optimizer;
}

std::vector<std::string> parameter_names(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : parameter_table(config)) {
    names.push_back(spec.name);
  }
  return names;
}

}  // namespace

MeshModel::MeshModel(const Options& options, Groups& groups)
    : options_(options),
      groups_(&groups),
      plan_(plan_of(options, groups)),
      rehearsal_(options.rehearsal),
      stream_({.device = device_of(options),
               .num_threads = options.num_threads,
               .workspace_bytes = executor_workspace_bytes(
                   options.job.model, plan_.executor, {options.num_threads, options.job.device}),
               .rehearsal = rehearsal_ ? rehearsal_->clock() : nullptr}),
      parameters_(options.job.model, parameter_options(options, plan_, stream_.device())),
      sync_plan_(options.makers.sync_plan(parameters_.all(), plan_)),
      memory_(parameters_, sync_plan_, backing_of(stream_.device())),
      optimizer_(optimizer_of(options, sync_plan_, memory_, parameters_)),
      channels_(
          {.plans = options.compression,
           .errors = options.codec_errors,
           .sampled = options.sampled,
           .boundaries = {options.job, plan_, stream_.device(), options.seed},
           .workers = {options.num_threads, stream_.device()},
           .sequence_parallel = options.job.parallel.sequence_parallel,
           .seed = options.seed,
           .codecs = codec_maker()},
          {.tensor = groups.tensor.get(),
           .data = groups.data.get(),
           .forward = groups.forward.get(),
           .backward = groups.backward.get(),
           .replica = groups.replica(),
           .replicas = groups.num_workers() * groups.data->size()},
          SyncExecutor::sum_channels(sync_plan_, memory_, plan_, groups, options.seed),
          SyncExecutor::gather_channels(sync_plan_, memory_, groups, backing_of(stream_.device()))),
      executor_(parameters_, options.job.model, plan_.executor, groups, channels_),
      sync_(sync_plan_, memory_, groups, channels_),
      agreement_(*groups.world, parameter_names(options.job.model)) {
  SL_CHECK_EQ(groups.world->size(), options.job.parallel.num_ranks());
  if (groups.staging != nullptr) {
    groups.staging->follow(stream_);
  }
  if (options_.cuda_graphs) {
    executor_.use_graphs();
  }
}

void MeshModel::initialize(std::uint64_t seed) {
  for (std::size_t i = 0; i < optimizer_.tensors().size(); ++i) {
    const OptimizerPiece& piece = pieces()[i];
    slackline::initialize(
        stream_, *piece.parameter, piece.range, optimizer_.tensors()[i].weight, seed);
  }
  publish_weights();
}

void MeshModel::publish_weights() {
  begin_publishing();
  finish_gather();
}

void MeshModel::begin_publishing() {
  for (const OptimizedTensor& tensor : optimizer_.tensors()) {
    if (!tensor.weight_copy.empty()) {
      cast(stream_, tensor.weight, tensor.weight_copy);
    }
  }
  sync_.begin_gathers();
}

double MeshModel::tokens_of_step() const {
  return static_cast<double>(options_.job.global_batch() * options_.job.micro_batch.T);
}

void MeshModel::bring_to_device(std::vector<MicroBatch>& micro_batches) {
  std::size_t elements = 0;
  for (const MicroBatch& batch : micro_batches) {
    elements += batch.tokens.num_elements() + batch.targets.num_elements();
  }
  if (elements * sizeof(std::int32_t) > tokens_.bytes()) {
    tokens_ = Buffer("tokens of a step", elements * sizeof(std::int32_t), Backing::cuda);
    pinned_tokens_ = Buffer("tokens of a step", elements * sizeof(std::int32_t), Backing::pinned);
  }
  std::size_t taken = 0;
  const auto bring = [&](Tensor& tensor) {
    if (tensor.raw() == nullptr) {  // a stage between the first and the last reads none
      return;
    }
    const Tensor there = tokens_.view(tensor.dtype(), tensor.shape(), taken);
    const Tensor pinned = pinned_tokens_.view(tensor.dtype(), tensor.shape(), taken);
    std::memcpy(pinned.raw(), tensor.raw(), tensor.bytes());
    cuda::copy(stream_.cuda().handle(), there.raw(), pinned.raw(), tensor.bytes());
    taken += tensor.bytes();
    tensor = there;
  };
  for (MicroBatch& batch : micro_batches) {
    bring(batch.tokens);
    bring(batch.targets);
  }
}

PipelineExecutor::Work MeshModel::work_of(std::vector<MicroBatch> micro_batches) {
  if (stream_.device() == Device::cuda) {
    bring_to_device(micro_batches);
  }
  return {.stream = stream_,
          .micro_batches = std::move(micro_batches),
          .dropout = options_.job.model.dropout,
          .seed = options_.seed,
          .scale = static_cast<float>(1.0 / tokens_of_step()),
          .use = &sync_,
          .rehearsal = rehearsal_ ? &*rehearsal_ : nullptr};
}

// Memory goes while transfers may be under way, and what makes or takes their data.
MeshModel::~MeshModel() {
  channels_.stop();
  if (groups_->staging != nullptr) {
    groups_->staging->set_waits(HostStaging::Waits::thread);
  }
}

// The first pass of a plan finds memory for messages and chooses algorithms, the second captures
// graphs, and one that samples makes room for that: times in which the process may be held up.
void MeshModel::choose_who_waits(Settling& passes) {
  if (groups_->staging == nullptr || !options_.stream_waits) {
    return;
  }
  if (passes.plan != channels_.in_force_from()) {
    passes = {.plan = channels_.in_force_from(), .streams_waited = passes.streams_waited};
  }
  const bool settled =
      passes.passes++ >= (options_.cuda_graphs ? 2 : 1) && !channels_.samples() && !keeps_messages_;
  const bool streams_wait = settled && groups_->ranks_are_processes;
  if (streams_wait && !passes.streams_waited) {
    passes.streams_waited = true;
    log_info("streams wait for transfers from here on");
  }
  streams_wait ? groups_->staging->set_waits(HostStaging::Waits::stream) : let_thread_wait();
}

// Memory changes only when what streams wait for by now has come.
void MeshModel::let_thread_wait() {
  if (groups_->staging != nullptr && groups_->staging->waits() == HostStaging::Waits::stream) {
    groups_->staging->finish();
    groups_->staging->set_waits(HostStaging::Waits::thread);
  }
}

StepFacts MeshModel::make_gradients(std::vector<MicroBatch> micro_batches,
                                    const std::function<bool()>& wants_stop) {
  const auto step = static_cast<std::int64_t>(micro_batches.front().step);
  if (channels_.begins_plan(step)) {
    let_thread_wait();
  }
  channels_.begin_step(step);
  choose_who_waits(training_);
  if (options_.may_skip) {
    channels_.keep_state();
  }
  PipelineExecutor::Work work = work_of(std::move(micro_batches));
  if (keeps_messages_) {
    kept_messages_.begin_step();
    work.keeps = &kept_messages_;
    channels_.keep_messages(SumChannel::Keeping{stream_, &kept_messages_});
  }
  sync_.begin_passes(SyncExecutor::Passes::train);
  double loss = executor_.train(work);
  sync_.finish_sums(stream_);
  channels_.keep_messages(std::nullopt);
  if (groups_->tensor_rank() != 0) {
    loss = 0.0;  // the sum that all tensor ranks have counts once
  }
  step_times_.ops = executor_.op_times();
  step_times_.updated = false;
  step_times_.norm_begin = groups_->world->now();
  if (rehearsal_) {
    rehearsal_->take_norms();
  }
  const std::vector<double> squares = optimizer_.squared_norms(stream_);
  step_times_.norm_end = groups_->world->now();
  step_times_.codecs = channels_.take_times();  // the norms have waited for all
  const bool stop = wants_stop && wants_stop();
  StepFacts facts = agreement_.agree({.loss = loss, .stop = stop}, pieces(), squares);
  facts.loss /= tokens_of_step();
  return facts;
}

void MeshModel::update(double lr, double gradient_norm, Publishing publishing) {
  step_times_.updated = true;
  step_times_.update_begin = groups_->world->now();
  if (stream_.device() == Device::cuda) {
    queue_update(lr, gradient_norm);
  } else {
    if (rehearsal_) {
      rehearsal_->update();
    }
    optimizer_.step(stream_, lr, gradient_norm);
    step_times_.update_end = groups_->world->now();
  }
  if (publishing == Publishing::update) {
    sync_.begin_gathers();
  }
}

// It takes as long as the one before: what it takes itself is known when it has been waited for.
void MeshModel::queue_update(double lr, double gradient_norm) {
  const double now = step_times_.update_begin;
  if (queues_updates_) {
    queued_seconds_ = update_times_.seconds(1) - update_times_.seconds(0);
  }
  queues_updates_ = true;
  update_times_.restart(stream_, now);
  static_cast<void>(update_times_.mark(stream_, now));
  optimizer_.step(stream_, lr, gradient_norm);
  static_cast<void>(update_times_.mark(stream_, now));
  step_times_.update_end = now + queued_seconds_;
}

void MeshModel::skip() {
  SL_CHECK(options_.may_skip, "a step is skipped");
  channels_.restore_state();
}

void MeshModel::require_sync() {
  finish_gather();
  check_sync(sync_plan_, memory_, options_.job.parallel.data_strategy, *groups_);
}

StepFacts MeshModel::evaluate(std::vector<MicroBatch> micro_batches, bool stop) {
  choose_who_waits(evaluation_);
  channels_.keep_state();
  sync_.begin_passes(SyncExecutor::Passes::evaluate);
  double loss = executor_.evaluate(work_of(std::move(micro_batches)));
  channels_.restore_state();
  if (groups_->tensor_rank() != 0) {
    loss = 0.0;
  }
  StepFacts facts = agreement_.agree({.loss = loss, .stop = stop});
  facts.loss /= tokens_of_step();
  return facts;
}

}  // namespace slackline
