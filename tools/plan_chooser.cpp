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
  watched_from_ = plans.back().from_step;
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
  const PlanHistory& plans = model_->compression().plans();
  std::string own;
  if (world_->rank() == 0) {
    own = compression_plan_json(
        {.from_step = std::max({step + kStepsToChange,
                                std::int64_t{config_->compress.warmup_steps} + 1,
                                plans.back().from_step + 1}),
         .plan = choose_critical_path(
                     config_->compress, config_->mesh_job(), costs, links, guard_limits(plans))
                     .plan});
  }
  PlanFromStep plan = read_compression_plan(broadcast_text(*world_, 0, own, "the chosen plan"));
  const auto same_codecs = [](const CompressionPlan::Class& a, const CompressionPlan::Class& b) {
    return a.members == b.members && a.codec == b.codec;
  };
  const bool first = plans == compression_plans(*config_);
  if (!first && std::ranges::equal(plan.plan.classes, plans.back().plan.classes, same_codecs)) {
    return std::nullopt;
  }
  model_->compression().add_plan(plan);
  return plan;
}

bool PlanChooser::has_drifted(std::int64_t step, double step_seconds) {
  const std::int64_t last = model_->compression().plans().back().from_step;
  if (last != watched_from_) {
    watched_from_ = last;
    watch_.restart();
  }
  return state_ == State::watching && step >= watched_from_ && watch_.add(step_seconds);
}

}  // namespace slackline
