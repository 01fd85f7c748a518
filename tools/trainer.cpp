#include "tools/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "model/flops.h"
#include "optim/learning_rate.h"
#include "tools/memory_plan.h"
#include "tools/stop_signal.h"
#include "tools/training_state.h"

namespace slackline {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Stage::Options stage_options(const TrainConfig& config) {
  return {.micro_batch = config.micro_shape(), .compute = config.precision};
}

Stream::Options stream_options(const TrainConfig& config, int num_threads) {
  return {.num_threads = num_threads,
          .workspace_bytes = training_workspace_bytes(config, num_threads)};
}

}  // namespace

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
  }
  record.step_seconds = seconds_since(start);
  record.compute_seconds = record.step_seconds - std::exchange(data_seconds_, 0.0);
  return record;
}

double Trainer::accumulate_gradients(std::int64_t step) {
  const auto consumed = static_cast<std::uint64_t>((step - 1) * config_.batch.global);
  const float scale =
      1.0F / static_cast<float>(config_.batch.global * config_.model.sequence);
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

Pass Trainer::load(Dataset& data, std::uint64_t first_sample) {
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
          .batch = {.tokens = Tensor(std::span(tokens_)).reshaped({B, T}),
                    .targets = Tensor(std::span(targets_)),
                    .first_sample = first_sample},
          .seed = config_.run.seed};
}

}  // namespace slackline
