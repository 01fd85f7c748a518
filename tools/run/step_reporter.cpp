#include "tools/run/step_reporter.h"

#include <string>
#include <unistd.h>

#include "core/comm/world.h"
#include "core/terminal.h"
#include "model/cost/flops.h"

namespace slackline {

RoundRecord round_record(const RoundEnd& end) {
  return {.worker_losses = end.losses,
          .penalty = end.penalty,
          .distance = end.distance,
          .period = end.period,
          .left_out = !end.not_finite.empty(),
          .clipped = end.clipped};
}

StepReporter::StepReporter(const TrainConfig& config,
                           const Options& options,
                           MeshModel& model,
                           Groups& groups,
                           RunDirectory& directory)
    : config_(&config),
      groups_(&groups),
      directory_(&directory),
      accounts_(config, model, groups),
      plan_(config, options.plan, model, directory),
      trace_(config, options.plan.first_step, plan_.measured(), groups, directory),
      costs_(config.mesh_job(), groups),
      peak_flops_(options.peak_flops) {}

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
    print(step.record);
  }
  plan_.judge(step);
  trace_.add(step);
  if (costs_.add(step, plan_.measured())) {
    plan_.take_costs(costs_);
  }
}

void StepReporter::print(const StepRecord& record) {
  recent_seconds_ = recent_seconds_ == 0.0 ? record.step_seconds
                                           : 0.9 * recent_seconds_ + 0.1 * record.step_seconds;
  const std::string line = console_line(record,
                                        {.steps = config_->run.steps,
                                         .flops_per_token = flops_per_token(config_->model).causal,
                                         .peak_flops = peak_flops_,
                                         .seconds_per_step = recent_seconds_});
  const bool due = record.step % config_->run.log_every == 0 || record.step == config_->run.steps;
  // mpirun gives ranks a terminal whatever its own output goes to.
  const bool redraws = isatty(STDOUT_FILENO) != 0 && !launched_by_mpi();
  if (redraws) {
    redraw_line(Output::standard, line);  // replaced by the next step's where this one is not due
  }
  if (due) {
    print_progress(redraws ? "\n" : line + "\n");
  }
}

}  // namespace slackline
