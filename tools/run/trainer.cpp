#include "tools/run/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/checkpoint/checkpoint_directory.h"
#include "core/comm/text_exchange.h"
#include "core/log.h"
#include "core/terminal.h"
#include "optim/learning_rate.h"
#include "tools/config/config_job.h"
#include "tools/plan/memory_plan.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/step_plan.h"
#include "tools/record/run_summary.h"
#include "tools/run/compression_state.h"
#include "tools/run/first_rank.h"
#include "tools/run/kept_settings.h"
#include "tools/run/run_notices.h"
#include "tools/run/stop_signal.h"

namespace slackline {

namespace {

// Opens the starting state, which decides what the config leaves open. On a CUDA device, also
// reserves what memory_plan() asks for.
TrainingStart open_start(TrainConfig& config,
                         const Trainer::Options& options,
                         const Groups& groups,
                         RunDirectory& directory) {
  const bool is_first_rank = groups.is_first_rank();
  TrainingStart start =
      open_training_start(config,
                          options.resume,
                          links_of_run(config.network, config.device, options.links),
                          is_first_rank ? &directory : nullptr);
  if (config.device == Device::cuda) {
    reserve_device_memory(memory_plan(
        plan_job(config), place_of(groups), start.compression.plans, options.num_threads));
  }
  return start;
}

Dataset open_train_data(const TrainConfig& config, const TrainingStart& start) {
  return {start.data.train,
          {.seed = config.run.seed,
           .sequence = config.model.sequence,
           .samples = static_cast<std::uint64_t>(config.run.steps * config.batch.global),
           .stored = start.order,
           .stored_contents = start.contents}};
}

std::optional<Dataset> open_valid_data(const TrainConfig& config, const TrainingStart& start) {
  if (config.run.eval_every == 0) {
    return std::nullopt;
  }
  return Dataset(
      start.data.valid,
      {.seed = config.run.seed,
       .sequence = config.model.sequence,
       .samples = static_cast<std::uint64_t>(config.run.eval_batches * config.batch.global)});
}

// Where a guard judges, each new plan is looked at as soon as it has settled.
SampledSteps sampled_steps(const CompressConfig& config) {
  const bool judges = !config.guard.max_error.empty() && config.policy != CompressionPolicy::replay;
  return {.every = config.guard.every, .after_change = judges};
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Options& options, Groups& groups)
    : config_(config),
      options_(options),
      world_(groups.everyone),
      directory_(config.run.dir),
      start_(open_start(config_, options, groups, directory_)),
      train_data_(open_train_data(config_, start_)),
      valid_data_(open_valid_data(config_, start_)),
      model_({.job = config.mesh_job(),
              .optimizer = config_.optimizer,
              .seed = config.run.seed,
              .num_threads = options.num_threads,
              .compression = start_.compression.plans,
              .codec_errors = start_.compression.errors,
              .sampled = sampled_steps(config.compress),
              .cuda_graphs = config.run.cuda_graphs,
              .stream_waits = config.run.stream_waits,
              .may_skip = config.run.on_nonfinite == OnNonFinite::skip},
             groups),
      reporter_(config_,
                {.plan = {.first_step = start_.step + 1,
                          .links = options.links,
                          .num_threads = options.num_threads,
                          .codecs_take_compute = options.codecs_take_compute},
                 .peak_flops = options.peak_flops},
                model_,
                groups,
                directory_),
      checkpoints_(
          directory_.checkpoints(), static_cast<std::size_t>(config.run.keep), *groups.everyone),
      sample_(static_cast<std::size_t>(config.model.sequence) + 1),
      tokens_(
          static_cast<std::size_t>(config.num_micro_batches() * config.micro_shape().num_tokens())),
      targets_(tokens_.size()) {
  if (config_.outer.is_on()) {
    outer_.emplace(OuterLoop::Options{.config = config_.outer,
                                      .rate =
                                          [this](std::int64_t step) {
                                            return learning_rate(
                                                config_.optimizer, step, config_.run.steps);
                                          },
                                      .codec = config_.compress.codec_of_rounds(),
                                      .plain_steps = config_.compress.warmup_steps},
                   model_);
  }
}

ExitCode Trainer::run() {
  const bool owes_evaluation = options_.resume && owed_evaluation();
  if (start_.step >= config_.run.steps && start_.checkpoint && is_first_rank()) {
    report_missing_end(*start_.checkpoint, start_.step);
  }
  if (start_.step >= config_.run.steps && !owes_evaluation) {
    require_own_checkpoint();
    if (is_first_rank()) {
      log_info(fmt::format("{}: all {} steps are done", config_.run.dir, config_.run.steps));
    }
    return ExitCode::done;
  }
  begin();
  if (owes_evaluation && !evaluate_when_due(start_.step)) {
    return stopped_after(start_.step);
  }
  for (std::int64_t step = start_.step + 1; step <= config_.run.steps; ++step) {
    const bool told_to_stop = train_step(step);
    if (!outer_ || outer_->rounds().last_end == step) {
      const double commit_began = world_->now();
      checkpoints_.commit_when_written();
      leave_out_since(commit_began);
    }
    const bool last = step == config_.run.steps;
    const bool stops = told_to_stop && !last;
    // An evaluation that is left out is made by who resumes; workers that train apart finish it.
    const bool stop = (stops && !outer_) || !evaluate_when_due(step) || stops;
    if (stop || last || (config_.run.save_every > 0 && step % config_.run.save_every == 0)) {
      save(step);
    }
    if (stop) {
      checkpoints_.finish();
      return stopped_after(step);
    }
  }
  checkpoints_.finish();
  if (config_.device == Device::cuda) {
    report_device_memory(world_->rank());
  }
  return ExitCode::done;
}

void Trainer::begin() {
  make_state();
  claim_directory();
  checkpoints_.prepare();
  report_dropped_state(start_.stored_compression, start_.taken_compression, *world_);
  if (is_first_rank()) {
    const PlanFiles plan =
        plan_files(read_step_plan(plan_job(config_), {}, options_.links, start_.compression.plans));
    directory_.start(resolved_text(options_.resolved_config, config_), plan, start_.step);
    report_data(config_, start_.data, directory_);
    warn_of_unstable_rounds(config_.outer);
    const std::int64_t recorded = newest_step(config_.run.dir);
    if (options_.resume && (recorded > 0 || config_.checkpoint.resume_from.empty())) {
      warn_of_lost_record(config_.run.dir, recorded, start_.step);
    }
  }
}

void Trainer::save(std::int64_t step) {
  double began = world_->now();
  reporter_.flush();
  std::vector<WorkerProgress> workers;
  if (outer_) {
    workers = progress_of_workers(step);
    leave_out_since(began);
    outer_->settle();
    began = world_->now();
    outer_->gather_state();
  }
  // Before the checkpoint's rename, which relies on it; and when workers have met.
  on_first_rank(*world_, [&] { directory_.sync_record(); });
  checkpoints_.save(training_contents({.config = config_,
                                       .model = model_,
                                       .outer = outer_ ? &*outer_ : nullptr,
                                       .train_data = train_data_,
                                       .tokenizer = start_.data.tokenizer,
                                       .step = step,
                                       .skips = skips_,
                                       .workers = workers}));
  leave_out_since(began);
}

// What a save or a commit takes is no step's.
void Trainer::leave_out_since(double began) {
  if (outer_) {
    outer_->leave_out(world_->now() - began);
  }
}

void Trainer::make_state() {
  if (start_.source == TrainingStart::Source::initial_values) {
    model_.initialize(config_.run.seed);
    if (outer_) {
      outer_->restart(0);
    }
  } else {
    load_training_state(start_, model_, outer_ ? &*outer_ : nullptr);
    skips_ = start_.skips;
    if (is_first_rank()) {
      log_info(fmt::format("loaded {}, step {}", start_.checkpoint->path(), start_.step));
      if (start_.source == TrainingStart::Source::checkpoint) {
        report_workers(*start_.checkpoint, model_.groups(), outer_.has_value());
      }
    }
    start_.checkpoint.reset();  // unmaps the shards
  }
}

// A new run that begins where it ends would leave nothing, and look as if it had been run.
void Trainer::require_own_checkpoint() const {
  if (!options_.resume || list_checkpoints(directory_.checkpoints()).empty()) {
    throw AgreedError(
        fmt::format("run.steps: must be more than the {} steps of checkpoint.resume_from ({}); "
                    "got {}",
                    start_.step,
                    config_.checkpoint.resume_from,
                    config_.run.steps),
        ExitCode::config);
  }
}

// Where no run had left a lock, another process may have come and gone since the start looked.
void Trainer::claim_directory() {
  require_same_step();
  on_first_rank(*world_, [&] {
    directory_.claim();
    if (!options_.resume) {
      directory_.refuse_occupied();
    }
    refuse_incomplete_checkpoints(directory_.checkpoints(), start_.step, config_.run.steps);
    const std::vector<StepDirectory> saved = list_checkpoints(directory_.checkpoints());
    if (!saved.empty() && saved.back().step != start_.step) {
      throw FileError(
          fmt::format("{}: another process has gone on with this run meanwhile, to "
                      "step {}; start again to go on from there",
                      config_.run.dir,
                      saved.back().step));
    }
  });
}

// Ranks have opened their checkpoint each by itself, perhaps before and after another process
// saved.
void Trainer::require_same_step() {
  const std::vector<std::string> steps =
      exchange_texts(*world_, std::to_string(start_.step), "the step that ranks start from");
  for (const std::string& step : steps) {
    if (step != steps.front()) {
      throw AgreedError(
          fmt::format("{}: another process has gone on with this run meanwhile: ranks start from "
                      "steps {} and {}; start again",
                      config_.run.dir,
                      steps.front(),
                      step),
          ExitCode::file);
    }
  }
}

ExitCode Trainer::stopped_after(std::int64_t step) {
  if (is_first_rank()) {
    log_info(fmt::format("stopped by a signal after step {}; --resume continues", step));
  }
  return ExitCode::stopped;
}

bool Trainer::train_step(std::int64_t step) {
  reporter_.begin_step(step);
  StepRecord record{.step = step,
                    .lr = learning_rate(config_.optimizer, step, config_.run.steps),
                    .tokens = config_.batch.global * config_.model.sequence,
                    .has_workers = outer_.has_value()};
  const auto consumed = static_cast<std::uint64_t>((step - 1) * config_.batch.global);
  const StepFacts facts =
      model_.make_gradients(load(train_data_, consumed, step), StopSignal::has_come);
  record.loss = facts.loss;
  record.grad_norm = facts.gradient_norm;
  const bool has_no_update =
      has_failed_ || !std::isfinite(record.loss) || !std::isfinite(record.grad_norm);
  // A run that stops at such a step skips none.
  record.skipped = has_no_update && config_.run.on_nonfinite == OnNonFinite::skip;
  skips_ = has_no_update ? skips_ + 1 : 0;
  const bool ends_round = outer_ && (outer_->ends_round(step) || step == config_.run.steps);
  if (!has_no_update) {
    model_.update(record.lr,
                  record.grad_norm,
                  ends_round ? MeshModel::Publishing::caller : MeshModel::Publishing::update);
    if (outer_) {
      outer_->note_update();
    }
  } else if (config_.run.on_nonfinite == OnNonFinite::stop || skips_ >= config_.run.max_skips) {
    has_failed_ = true;
    if (!outer_) {
      stop_on_non_finite(record);
    }
  } else {
    model_.skip();
  }
  bool stop = facts.stop;
  if (outer_) {
    was_told_to_stop_ |= facts.stop;
    stop = ends_round && end_round(record, facts);
    outer_->look();
  }
  if (config_.check_sync && !has_no_update) {
    model_.require_sync();
  }
  reporter_.end_step(record, outer_ ? outer_->take_travels() : RoundTravels{});
  return stop;
}

bool Trainer::end_round(StepRecord& record, const StepFacts& facts) {
  const RoundEnd end = outer_->end_round(record.step,
                                         {.loss = facts.loss,
                                          .stop = was_told_to_stop_ || StopSignal::has_come(),
                                          .failed = has_failed_},
                                         record.step == config_.run.steps);
  was_told_to_stop_ = false;
  record.round = round_record(end);
  if (!end.failed.empty()) {
    stop_workers(record, end);
  }
  if (!end.not_finite.empty() && is_first_rank()) {
    log_warning(
        fmt::format("step {}: the outer round is left out: what worker {} has learned in "
                    "it is not finite",
                    record.step,
                    end.not_finite.front()));
  }
  return end.stop;
}

std::vector<WorkerProgress> Trainer::progress_of_workers(std::int64_t step) {
  const std::array own{static_cast<double>(model_.optimizer().step_count()),
                       static_cast<double>(skips_),
                       has_failed_ ? 1.0 : 0.0};
  const std::vector<double> all = outer_->of_workers(own);
  std::vector<WorkerProgress> workers;
  for (std::size_t i = 0; i < all.size(); i += own.size()) {
    if (all[i + 2] > 0.0) {
      checkpoints_.finish();
      throw AgreedError(
          fmt::format("step {}: stopped before a checkpoint: loss or gradient norm of "
                      "worker {} is not finite",
                      step,
                      i / own.size()),
          ExitCode::non_finite);
    }
    workers.push_back({.updates = static_cast<std::int64_t>(all[i]),
                       .skips = static_cast<std::int64_t>(all[i + 1])});
  }
  return workers;
}

void Trainer::stop_workers(const StepRecord& record, const RoundEnd& end) {
  reporter_.flush();
  checkpoints_.finish();
  if (is_first_rank()) {
    directory_.record(record);
  }
  throw AgreedError(fmt::format("step {}: stopped at the end of the outer round: loss or gradient "
                                "norm of worker {} is not finite",
                                record.step,
                                end.failed.front()),
                    ExitCode::non_finite);
}

std::vector<MicroBatch> Trainer::load(const Dataset& data, std::uint64_t first, std::int64_t step) {
  const std::int64_t B = config_.batch.micro;
  const std::int64_t T = config_.model.sequence;
  const bool reads = model_.slice().embedding() || model_.slice().head();
  std::vector<MicroBatch> batches;
  for (std::int64_t m = 0; m < config_.num_micro_batches(); ++m) {
    // Micro-batch m of all data ranks is one run of sequences.
    const std::int64_t sequence = (m * config_.parallel.data + model_.groups().replica()) * B;
    MicroBatch batch{.tokens = Tensor(nullptr, DType::i32, {B, T}),
                     .first_sample = first + static_cast<std::uint64_t>(sequence),
                     .step = static_cast<std::uint64_t>(step)};
    if (reads) {
      const auto begin = static_cast<std::size_t>(m * B * T);
      const auto count = static_cast<std::size_t>(B * T);
      const auto tokens = std::span(tokens_).subspan(begin, count);
      const auto targets = std::span(targets_).subspan(begin, count);
      for (std::int64_t b = 0; b < B; ++b) {
        data.sample(batch.first_sample + static_cast<std::uint64_t>(b), sample_);
        std::copy_n(sample_.begin(), T, tokens.begin() + b * T);
        std::copy_n(sample_.begin() + 1, T, targets.begin() + b * T);
      }
      batch.tokens = Tensor(tokens).reshaped({B, T});
      batch.targets = Tensor(targets);
    }
    batches.push_back(batch);
  }
  return batches;
}

std::optional<double> Trainer::evaluate() {
  const std::int64_t sequences = config_.run.eval_batches * config_.batch.global;
  double loss = 0.0;
  for (std::int64_t first = 0; first < sequences; first += config_.batch.global) {
    const StepFacts facts = model_.evaluate(
        load(*valid_data_, static_cast<std::uint64_t>(first), 0), StopSignal::has_come());
    if (outer_) {  // the others do not know of it before the round ends
      was_told_to_stop_ |= facts.stop;
    } else if (facts.stop) {
      return std::nullopt;
    }
    loss += facts.loss;
  }
  if (outer_) {
    loss = outer_->mean_over_workers(loss);
  }
  return loss / static_cast<double>(config_.run.eval_batches);
}

bool Trainer::evaluation_is_due(std::int64_t step) const {
  return config_.run.eval_every > 0 &&
         (step % config_.run.eval_every == 0 || step == config_.run.steps);
}

bool Trainer::owed_evaluation() {
  if (!evaluation_is_due(start_.step)) {
    return false;
  }
  const bool lacking = is_first_rank() && directory_.lacks_evaluation(start_.step);
  return broadcast_text(*world_, 0, lacking ? "yes" : "no", "lack of an evaluation") == "yes";
}

bool Trainer::evaluate_when_due(std::int64_t step) {
  if (!evaluation_is_due(step)) {
    return true;
  }
  reporter_.flush();
  if (outer_) {
    outer_->exchange_anchor(step);
  }
  const std::optional<double> loss = evaluate();
  if (outer_) {
    outer_->exchange_anchor(step);
  }
  if (loss && is_first_rank()) {
    directory_.record_evaluation(step, *loss);
    print_progress(
        fmt::format("step {}/{} | validation loss {:.4f}\n", step, config_.run.steps, *loss));
  }
  return loss.has_value();
}

void Trainer::stop_on_non_finite(const StepRecord& record) {
  reporter_.flush();
  checkpoints_.finish();
  if (is_first_rank()) {
    directory_.record(record);
  }
  const std::string tensor = model_.agreement().first_of(
      model_.optimizer().first_non_finite(model_.stream()).value_or(""));
  const std::string skipped =
      config_.run.on_nonfinite == OnNonFinite::stop
          ? ""
          : fmt::format(", the last of {} steps in a row that were skipped (run.max_skips)",
                        skips_);
  throw AgreedError(
      fmt::format("step {}: stopped before the update{}: {} is not finite; loss {}, gradient norm "
                  "{}",
                  record.step,
                  skipped,
                  tensor.empty() ? "the loss" : "the gradient of " + tensor,
                  record.loss,
                  record.grad_norm),
      ExitCode::non_finite);
}

}  // namespace slackline
