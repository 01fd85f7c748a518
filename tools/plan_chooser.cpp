#include "tools/plan_chooser.h"

#include <algorithm>
#include <string>

#include "core/comm/text_exchange.h"
#include "parallel/codec_measurement.h"
#include "parallel/compression_guard.h"
#include "parallel/critical_path.h"
#include "tools/compression_plans.h"

namespace slackline {

PlanChooser::PlanChooser(const TrainConfig& config,
                         int num_threads,
                         MeshModel& model,
                         Communicator& world)
    : config_(&config), num_threads_(num_threads), model_(&model), world_(&world) {
  const PlanHistory& plans = model.compression().plans();
  if (config.compress.policy != CompressionPolicy::critical_path ||
      config.device == Device::rehearsal || plans.empty()) {
    return;
  }
  const bool chosen = plans != compression_plans(config);
  state_ = chosen ? State::watching : State::measuring;
  chosen_ = is_guarded(plans.back().plan) ? CompressionPlan{} : plans.back().plan;
  chosen_from_ = plans.back().from_step;
}

void PlanChooser::measure_codecs(StepRecorder& recorder) const {
  const MeshJob job = config_->mesh_job();
  recorder.add_codecs(slackline::measure_codecs(
      candidate_messages(config_->compress, job), job.model.hidden, {num_threads_, job.device}));
}

std::optional<PlanFromStep> PlanChooser::choose(const StepCosts& costs,
                                                const LinkSpeeds& links,
                                                std::int64_t step) {
  state_ = State::watching;
  watch_.restart();
  if (!is_own_plan()) {
    return std::nullopt;
  }
  std::string own;
  if (world_->rank() == 0) {
    own = compression_plan_json(
        {.from_step =
             std::max<std::int64_t>(step + kStepsToChange, config_->compress.warmup_steps + 1),
         .plan = choose_critical_path(config_->compress, config_->mesh_job(), costs, links).plan});
  }
  PlanFromStep plan = read_compression_plan(broadcast_text(*world_, 0, own, "the chosen plan"));
  const auto same_codecs = [](const CompressionPlan::Class& a, const CompressionPlan::Class& b) {
    return a.members == b.members && a.codec == b.codec;
  };
  const bool first = model_->compression().plans() == compression_plans(*config_);
  if (!first && std::ranges::equal(plan.plan.classes, chosen_.classes, same_codecs)) {
    return std::nullopt;
  }
  chosen_ = plan.plan;
  chosen_from_ = plan.from_step;
  model_->compression().add_plan(plan);
  return plan;
}

// Not one that a guard has changed.
bool PlanChooser::is_own_plan() const {
  return model_->compression().plans().back().plan == chosen_;
}

bool PlanChooser::has_drifted(std::int64_t step, double step_seconds) {
  return state_ == State::watching && is_own_plan() && step >= chosen_from_ &&
         watch_.add(step_seconds);
}

}  // namespace slackline
