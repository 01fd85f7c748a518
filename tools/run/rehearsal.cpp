#include "tools/run/rehearsal.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "optim/learning_rate.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/config/config_job.h"
#include "tools/plan/plan_json.h"
#include "tools/run/first_rank.h"
#include "tools/run/kept_settings.h"
#include "tools/run/stop_signal.h"

namespace slackline {

Rehearsal::Rehearsal(const TrainConfig& config,
                     std::string resolved_config,
                     const LinkSpeeds& links,
                     Groups& groups)
    : config_(config),
      resolved_config_(std::move(resolved_config)),
      everyone_(groups.everyone),
      plan_(read_step_plan(plan_job(config), {}, links)),
      costs_(std::make_shared<const StepCosts>(plan_.costs)),
      model_({.job = config.mesh_job(),
              .optimizer = config.optimizer,
              .seed = config.run.seed,
              .rehearsal =
                  StepRehearsal::Costs{.ops = cost_model(config.mesh_job(), *costs_, std::nullopt),
                                       .codecs = costs_},
              .compression = plan_.plans},
             groups),
      directory_(config.run.dir),
      reporter_(config_, {.plan = {.links = links}}, model_, groups, directory_),
      tokens_(static_cast<std::size_t>(config.micro_shape().num_tokens())) {
  if (config.outer.is_on()) {
    outer_.emplace(OuterLoop::Options{.config = config.outer,
                                      .rate = [](std::int64_t /*step*/) { return 0.0; },
                                      .codec = config.compress.codec_of_rounds(),
                                      .plain_steps = config.compress.warmup_steps},
                   model_);
  }
  if (everyone_->rank() == 0) {
    directory_.claim_existing();
    directory_.refuse_occupied();
  }
}

std::vector<MicroBatch> Rehearsal::micro_batches(std::int64_t step) {
  const Tensor tokens{std::span(tokens_)};
  return std::vector<MicroBatch>(
      static_cast<std::size_t>(config_.num_micro_batches()),
      MicroBatch{.tokens = tokens.reshaped({config_.batch.micro, config_.model.sequence}),
                 .targets = tokens,
                 .step = static_cast<std::uint64_t>(step)});
}

ExitCode Rehearsal::run() {
  on_first_rank(*everyone_, [&] {
    directory_.claim();
    directory_.refuse_occupied();  // another process may have come and gone before the lock
  });
  if (everyone_->rank() == 0) {
    directory_.start(resolved_text(resolved_config_, config_), plan_files(plan_), 0);
    log_info("rehearsal: ops wait instead of computing; nothing is learned, evaluated or saved");
  }
  for (std::int64_t step = 1; step <= config_.run.steps; ++step) {
    if (run_step(step) && step < config_.run.steps) {
      reporter_.flush();
      return ExitCode::stopped;
    }
  }
  reporter_.flush();
  return ExitCode::done;
}

bool Rehearsal::run_step(std::int64_t step) {
  constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
  StepRecord record{.step = step,
                    .loss = kNothing,
                    .grad_norm = kNothing,
                    .lr = learning_rate(config_.optimizer, step, config_.run.steps),
                    .tokens = config_.batch.global * config_.model.sequence,
                    .has_workers = outer_.has_value(),
                    .rehearsed = true};
  reporter_.begin_step(step);
  const StepFacts facts = model_.make_gradients(micro_batches(step), StopSignal::has_come);
  const bool last = step == config_.run.steps;
  const bool ends_round = outer_ && (last || outer_->ends_round(step));
  model_.update(
      0.0, 0.0, ends_round ? MeshModel::Publishing::caller : MeshModel::Publishing::update);
  bool stop = facts.stop;
  if (outer_) {
    was_told_to_stop_ |= facts.stop;
    stop = false;
    if (ends_round) {
      const RoundEnd end =
          outer_->end_round(step, {.loss = kNothing, .stop = was_told_to_stop_}, last);
      record.round = round_record(end);
      stop = end.stop;
    }
    outer_->look();
  }
  reporter_.end_step(record, outer_ ? outer_->take_travels() : RoundTravels{});
  return stop;
}

}  // namespace slackline
