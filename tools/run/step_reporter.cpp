#include "tools/run/step_reporter.h"

namespace slackline {

StepReporter::StepReporter(const TrainConfig& config,
                           const Options& options,
                           MeshModel& model,
                           Groups& groups,
                           RunDirectory& directory)
    : groups_(&groups),
      directory_(&directory),
      accounts_(config, model, groups),
      printer_(config, options.peak_flops),
      plan_(config,
            {.first_step = options.first_step,
             .links = options.links,
             .num_threads = options.num_threads,
             .codecs_take_compute = options.codecs_take_compute},
            model,
            directory),
      trace_(config, options.first_step, plan_.measured(), groups, directory),
      costs_(config.mesh_job(), groups) {}

void StepReporter::begin_step(std::int64_t step) {
  if (plan_.probe_is_due()) {
    flush();
    plan_.probe_anew();
  }
  plan_.begin_step(step);
  accounts_.begin_step();
}

void StepReporter::end_step(const StepRecord& record, const RoundTravels& rounds) {
  if (const auto step = accounts_.end_step(record, rounds)) {
    report(*step);
  }
  const MeasuredSteps& measured = plan_.measured();
  if (groups_->world->size() == 1 || (measured.at_once && record.step == measured.last)) {
    flush();
  }
}

void StepReporter::flush() {
  for (const AccountedStep& step : accounts_.flush()) {
    report(step);
  }
}

void StepReporter::report(const AccountedStep& step) {
  if (groups_->is_first_rank()) {
    directory_->record(step.record);
    printer_.print(step.record);
  }
  plan_.judge(step);
  trace_.add(step);
  if (costs_.add(step, plan_.measured())) {
    plan_.take_costs(costs_);
  }
}

}  // namespace slackline
