#include "tools/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "model/flops.h"
#include "optim/learning_rate.h"
#include "tools/memory_plan.h"
#include "tools/optimized_parameters.h"
#include "tools/stop_signal.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Dataset open_train_data(const TrainConfig& config, const TrainingStart& start) {
  return {start.data.train,
          {.seed = config.run.seed,
           .sequence = config.model.sequence,
           .samples = static_cast<std::uint64_t>(config.run.steps * config.batch.global),
           .stored = start.order}};
}

std::optional<Dataset> open_valid_data(const TrainConfig& config, const TrainingStart& start) {
  if (config.run.eval_every == 0) {
    return std::nullopt;
  }
  if (start.data.valid.empty()) {
    throw ConfigError(
        fmt::format("run.eval_every: needs data.valid, or a share of data.split for validation; "
                    "got {}",
                    config.run.eval_every));
  }
  return Dataset(
      start.data.valid,
      {.seed = config.run.seed,
       .sequence = config.model.sequence,
       .samples = static_cast<std::uint64_t>(config.run.eval_batches * config.batch.global)});
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Options& options)
    : config_(config),
      options_(options),
      start_(open_training_start(config, options.resume)),
      train_data_(open_train_data(config, start_)),
      valid_data_(open_valid_data(config, start_)),
      stream_({.num_threads = options.num_threads,
               .workspace_bytes = training_workspace_bytes(config, options.num_threads)}),
      parameters_(config.model, {.compute = config.precision}),
      stage_(parameters_,
             config.model,
             {.micro_batch = config.micro_shape(), .compute = config.precision}),
      optimizer_(optimized_parameters(parameters_, config.optimizer.decay_embeddings),
                 config.optimizer),
      directory_(config.run.dir),
      saver_({.directory = directory_.checkpoints(),
              .keep = static_cast<std::size_t>(config.run.keep)}),
      sample_(static_cast<std::size_t>(config.model.sequence) + 1),
      tokens_(static_cast<std::size_t>(config.micro_shape().num_tokens())),
      targets_(tokens_.size()) {
  if (start_.source == TrainingStart::Source::initial_values) {
    initialize(stream_, parameters_, config.run.seed);
  } else {
    load_training_state(stream_, start_, config.model, parameters_, optimizer_);
    log_info(fmt::format("loaded {}, step {}", start_.checkpoint->path(), start_.step));
    start_.checkpoint.reset();  // unmaps the shards
  }
}

ExitCode Trainer::run() {
  if (start_.step >= config_.run.steps) {
    log_info(fmt::format("{}: all {} steps are done", config_.run.dir, config_.run.steps));
    return ExitCode::done;
  }
  const StopSignal signals;
  directory_.start(options_.resolved_config, start_.step);
  for (std::int64_t step = start_.step + 1; step <= config_.run.steps; ++step) {
    log(train_step(step));
    evaluate_when_due(step);
    const bool stop = StopSignal::received() != 0;
    const bool last = step == config_.run.steps;
    if (stop || last || (config_.run.save_every > 0 && step % config_.run.save_every == 0)) {
      save(step);
    }
    if (stop && !last) {
      saver_.wait();
      log_info(fmt::format(
          "stopped by signal {} after step {}; --resume continues", StopSignal::received(), step));
      return ExitCode::stopped;
    }
  }
  saver_.wait();
  return ExitCode::done;
}

StepRecord Trainer::train_step(std::int64_t step) {
  const Clock::time_point start = Clock::now();
  StepRecord record{.step = step, .lr = learning_rate(config_.optimizer, step, config_.run.steps)};
  record.tokens = config_.batch.global * config_.model.sequence;
  record.loss = accumulate_gradients(step) / static_cast<double>(record.tokens);
  record.grad_norm = optimizer_.gradient_norm(stream_);
  record.skipped = !std::isfinite(record.loss) || !std::isfinite(record.grad_norm);
  if (!record.skipped) {
    optimizer_.step(stream_, record.lr, record.grad_norm);
  } else if (config_.run.on_nonfinite == OnNonFinite::stop) {
    stop_on_non_finite(record);
  } else {
    optimizer_.set_step_count(step);  // steps left out count too, so that a resume needs no count
  }
  record.step_seconds = seconds_since(start);
  record.compute_seconds = record.step_seconds - std::exchange(data_seconds_, 0.0);
  return record;
}

double Trainer::accumulate_gradients(std::int64_t step) {
  const auto consumed = static_cast<std::uint64_t>((step - 1) * config_.batch.global);
  const float scale = 1.0F / static_cast<float>(config_.batch.global * config_.model.sequence);
  double loss = 0.0;
  stage_.begin_step(stream_);
  for (std::int64_t m = 0; m < config_.num_micro_batches(); ++m) {
    Pass pass = load(train_data_, consumed + static_cast<std::uint64_t>(m * config_.batch.micro));
    pass.batch.step = static_cast<std::uint64_t>(step);
    pass.dropout = config_.model.dropout;
    pass.accumulate = m == 0 ? Accumulate::no : Accumulate::yes;
    stage_.forward(pass);
    loss += stage_.backward(pass, scale);
  }
  stage_.finish_gradients(stream_);
  return loss;
}

Pass Trainer::load(const Dataset& data, std::uint64_t first_sample) {
  const Clock::time_point start = Clock::now();
  const std::int64_t B = config_.batch.micro;
  const std::int64_t T = config_.model.sequence;
  for (std::int64_t b = 0; b < B; ++b) {
    data.sample(first_sample + static_cast<std::uint64_t>(b), sample_);
    std::copy_n(sample_.begin(), T, tokens_.begin() + b * T);
    std::copy_n(sample_.begin() + 1, T, targets_.begin() + b * T);
  }
  data_seconds_ += seconds_since(start);
  return {.stream = stream_,
          .sum = &sum_,
          .batch = {.tokens = Tensor(std::span(tokens_)).reshaped({B, T}),
                    .targets = Tensor(std::span(targets_)),
                    .first_sample = first_sample},
          .seed = config_.run.seed};
}

std::optional<double> Trainer::evaluate() {
  const std::int64_t sequences = config_.run.eval_batches * config_.batch.global;
  double loss = 0.0;
  for (std::int64_t first = 0; first < sequences; first += config_.batch.micro) {
    if (StopSignal::received() != 0) {
      return std::nullopt;
    }
    loss += stage_.evaluate(load(*valid_data_, static_cast<std::uint64_t>(first)));
  }
  data_seconds_ = 0.0;
  return loss / static_cast<double>(sequences * config_.model.sequence);
}

void Trainer::evaluate_when_due(std::int64_t step) {
  const bool due = config_.run.eval_every > 0 &&
                   (step % config_.run.eval_every == 0 || step == config_.run.steps);
  if (!due) {
    return;
  }
  if (const std::optional<double> loss = evaluate()) {
    directory_.record_evaluation(step, *loss);
    fmt::print("step {}/{} | validation loss {:.4f}\n", step, config_.run.steps, *loss);
    std::fflush(stdout);
  }
}

void Trainer::save(std::int64_t step) {
  saver_.save(training_contents({.config = config_,
                                 .parameters = parameters_,
                                 .optimizer = optimizer_,
                                 .train_data = train_data_,
                                 .tokenizer = start_.data.tokenizer,
                                 .step = step}));
}

void Trainer::log(const StepRecord& record) {
  directory_.record(record);
  recent_step_seconds_ = recent_step_seconds_ == 0.0
                             ? record.step_seconds
                             : 0.9 * recent_step_seconds_ + 0.1 * record.step_seconds;
  const std::string line = console_line(record,
                                        {.steps = config_.run.steps,
                                         .flops_per_token = flops_per_token(config_.model).causal,
                                         .seconds_per_step = recent_step_seconds_});
  const bool due = record.step % config_.run.log_every == 0 || record.step == config_.run.steps;
  if (due) {
    fmt::print("{}{}\n", isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", line);
  } else if (isatty(STDOUT_FILENO) != 0) {
    fmt::print("\r\033[K{}", line);  // a progress line, replaced by the next step's
  }
  std::fflush(stdout);
}

void Trainer::stop_on_non_finite(const StepRecord& record) {
  directory_.record(record);
  const std::optional<std::string> tensor = optimizer_.first_non_finite(stream_);
  throw NonFiniteError(
      fmt::format("step {}: stopped before the update: {} is not finite; loss {}, gradient norm {}",
                  record.step,
                  tensor ? "the gradient of " + *tensor : "the loss",
                  record.loss,
                  record.grad_norm));
}

}  // namespace slackline
