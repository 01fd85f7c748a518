#include "tools/run/plan_chooser.h"

#include <algorithm>
#include <string>

#include "compress/codec_measurement.h"
#include "core/comm/text_exchange.h"
#include "parallel/channel/message_trial.h"
#include "parallel/choose/compression_guard.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/choose/critical_path.h"
#include "tools/plan/compression_plans.h"

namespace slackline {

namespace {

// Steps that are measured, and the first of a plan, in which codecs begin, that is not.
constexpr std::int64_t kFirstSteps = kFirstChosenStep - 1;
constexpr std::int64_t kRefiningSteps = 4;
constexpr std::int64_t kDriftedSteps = 5;

}  // namespace

// A choice that was made at once and that no later one has refined when the process began is
// refined by as many steps as ever, of which the process' first one, a slow one, is none.
std::optional<MeasuredSteps> first_measured_steps(std::int64_t first_step,
                                                  std::int64_t warm_up,
                                                  const PlanHistory& plans) {
  const auto chosen = std::ranges::find_if(plans, [&](const PlanFromStep& plan) {
    return plan.from_step >= warm_up + kFirstChosenStep;
  });
  if (chosen == plans.end()) {
    const std::int64_t first = std::max(first_step, warm_up + 1);
    return MeasuredSteps{.first = first, .last = first + kFirstSteps - 1, .at_once = true};
  }
  if (first_step > chosen->from_step + kRefiningSteps) {
    return std::nullopt;
  }
  const std::int64_t first = std::max(first_step, plans.back().from_step) + 1;
  return MeasuredSteps{.first = first, .last = first + kRefiningSteps - 1};
}

PlanChooser::PlanChooser(const TrainConfig& config,
                         std::int64_t first_step,
                         int num_threads,
                         MeshModel& model)
    : config_(&config), num_threads_(num_threads), model_(&model), world_(model.groups().world) {
  const PlanHistory& plans = model.channels().plans();
  chooses_ = config.compress.policy == CompressionPolicy::critical_path &&
             config.device != Device::rehearsal && !plans.empty();
  watched_from_ = plans.empty() ? 0 : plans.back().from_step;
  if (chooses_) {
    measurement_ = first_measured_steps(first_step, config.compress.warmup_steps, plans);
  }
}

void PlanChooser::measure_codecs(CostRecorder& recorder) const {
  const MeshJob job = config_->mesh_job();
  const Workers workers{num_threads_, job.device};
  recorder.codecs().add_beside_steps(slackline::measure_codecs(
      candidate_messages(config_->compress, job), job.model.hidden, workers));
  for (const CodecError& error : try_candidates(model_->kept_messages(),
                                                candidates_of(config_->compress, job),
                                                compressible_classes(job),
                                                workers,
                                                *world_)) {
    model_->channels().errors().note_trial(error);
  }
  model_->kept_messages().begin_step();
}

std::optional<PlanFromStep> PlanChooser::choose(const StepCosts& costs, const LinkSpeeds& links) {
  const MeasuredSteps measured = *measurement_;
  const PlanHistory& plans = model_->channels().plans();
  const bool first = measured.at_once;
  std::string own;
  if (world_->rank() == 0) {
    own = compression_plan_json(
        {.from_step =
             std::max(measured.last + (first ? 1 : kStepsToChange), plans.back().from_step + 1),
         .plan = choose_critical_path(
                     config_->compress, config_->mesh_job(), costs, links, guard_limits(plans))
                     .plan});
  }
  PlanFromStep plan = read_compression_plan(broadcast_text(*world_, 0, own, "the chosen plan"));
  watch_.restart();
  measurement_.reset();
  if (first) {
    measurement_ = {.first = plan.from_step + 1, .last = plan.from_step + kRefiningSteps};
  }
  const auto same_codecs = [](const CompressionPlan::Class& a, const CompressionPlan::Class& b) {
    return a.members == b.members && a.codec == b.codec;
  };
  if (!first && std::ranges::equal(plan.plan.classes, plans.back().plan.classes, same_codecs)) {
    return std::nullopt;
  }
  model_->channels().add_plan(plan);
  return plan;
}

bool PlanChooser::has_drifted(std::int64_t step, double step_seconds) {
  if (!chooses_ || measurement_) {
    return false;
  }
  const std::int64_t last = model_->channels().plans().back().from_step;
  if (last != watched_from_) {
    watched_from_ = last;
    watch_.restart();
  }
  return step >= watched_from_ && watch_.add(step_seconds);
}

void PlanChooser::measure_anew(std::int64_t first) {
  measurement_ = {.first = first, .last = first + kDriftedSteps - 1};
}

}  // namespace slackline
