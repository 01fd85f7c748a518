#include "tools/step_reporter.h"

#include <cstdio>
#include <iterator>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/comm/mpi_world.h"
#include "core/log.h"
#include "model/flops.h"
#include "parallel/class_bytes.h"
#include "tools/compression_plans.h"
#include "tools/cost_file.h"
#include "tools/plan_json.h"
#include "tools/step_plan.h"

namespace slackline {

namespace {

// Of a run, from 1: the first step is slower, and costs do not change much after some.
constexpr std::int64_t kFirstRecordedStep = 2;
constexpr std::int64_t kLastTracedStep = 3;
constexpr std::int64_t kLastRecordedStep = 6;

}  // namespace

StepReporter::StepReporter(const TrainConfig& config,
                           const LinkSpeeds& links,
                           const MeshModel& model,
                           Groups& groups,
                           RunDirectory& directory)
    : config_(&config),
      links_(links),
      model_(&model),
      world_(groups.world),
      directory_(&directory),
      wait_times_(groups),
      recorder_(config.mesh_job(), groups) {
  for (const PlanFromStep& row : compression_plans(config)) {
    saved_bytes_[row.from_step] = saved_axis_bytes(config.mesh_job(), row.plan);
  }
}

double StepReporter::saved_bytes(std::int64_t step, std::size_t axis) const {
  return std::prev(saved_bytes_.upper_bound(step))->second[axis];
}

void StepReporter::begin_step() {
  wait_times_.begin_step();
  start_ = Clock::now();
}

void StepReporter::end_step(const StepRecord& record, double data_seconds) {
  const double own_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (!ended_.empty()) {
    add_up(ended_.back());
  }
  wait_times_.end_step();
  if (ended_.size() == 2) {
    report(ended_.front());
    ended_.pop_front();
  }
  ended_.push_back({.record = record,
                    .times = model_->step_times(),
                    .own_seconds = own_seconds,
                    .data_seconds = data_seconds});
  if (world_->size() == 1) {
    flush();
  }
}

void StepReporter::flush() {
  if (!ended_.empty()) {
    add_up(ended_.back());
  }
  for (; !ended_.empty(); ended_.pop_front()) {
    report(ended_.front());
  }
}

void StepReporter::add_up(Ended& step) {
  StepWaits waits = wait_times_.finish_step();
  step.transfers = std::move(waits.transfers);
  step.sums = {step.own_seconds,
               step.own_seconds - step.data_seconds - waits.bubble - waits.exposed,
               waits.bubble,
               waits.exposed,
               step.data_seconds};
  for (const StepWaits::Axis& axis : waits.axes) {
    step.sums.insert(step.sums.end(), {axis.bytes_sent, axis.exposed});
  }
  step.sum = world_->all_reduce(Tensor(std::span(step.sums)), {.what = "accounts of the step"});
}

void StepReporter::report(Ended& step) {
  step.sum.wait();
  const auto mean = [&](std::size_t i) { return step.sums[i] / world_->size(); };
  StepRecord& record = step.record;
  record.step_seconds = mean(0);
  record.seconds = {.compute = mean(1), .bubble = mean(2), .exposed = mean(3), .other = mean(4)};
  for (std::size_t i = 0; i < record.axes.size(); ++i) {
    const double bytes = step.sums[5 + 2 * i];
    record.axes[i] = {.raw_bytes = bytes + saved_bytes(record.step, i),
                      .sent_bytes = bytes,
                      .exposed_seconds = mean(6 + 2 * i)};
  }
  if (is_first_rank()) {
    directory_->record(record);
    print(record);
  }
  ++num_reported_;
  if (num_reported_ >= kFirstRecordedStep && num_reported_ <= kLastRecordedStep) {
    record_times(step);
  }
}

void StepReporter::print(const StepRecord& record) {
  recent_step_seconds_ = recent_step_seconds_ == 0.0
                             ? record.step_seconds
                             : 0.9 * recent_step_seconds_ + 0.1 * record.step_seconds;
  const std::string line = console_line(record,
                                        {.steps = config_->run.steps,
                                         .flops_per_token = flops_per_token(config_->model).causal,
                                         .seconds_per_step = recent_step_seconds_});
  const bool due = record.step % config_->run.log_every == 0 || record.step == config_->run.steps;
  // mpirun gives ranks a terminal whatever its own output goes to.
  const bool redraws = isatty(STDOUT_FILENO) != 0 && !launched_by_mpi();
  if (due) {
    fmt::print("{}{}\n", redraws ? "\r\033[K" : "", line);
  } else if (redraws) {
    fmt::print("\r\033[K{}", line);  // a progress line, replaced by the next step's
  }
  std::fflush(stdout);
}

void StepReporter::record_times(const Ended& step) {
  recorder_.add(step.times, step.transfers);
  recorded_seconds_ += step.record.step_seconds;
  if (config_->trace && num_reported_ <= kLastTracedStep) {
    recorder_.trace(step.times, step.transfers);
  }
  if (config_->trace && num_reported_ == kLastTracedStep) {
    const std::string trace = recorder_.trace_text();
    if (is_first_rank()) {
      directory_->write_trace(trace);
    }
  }
  if (num_reported_ == kLastRecordedStep) {
    tell_costs(recorded_seconds_ / static_cast<double>(recorder_.num_steps()));
  }
}

void StepReporter::tell_costs(double measured_seconds) {
  StepCosts costs = recorder_.costs();
  if (!is_first_rank()) {
    return;
  }
  LinkSpeeds links = links_;
  if (config_->network.emulates()) {
    links = read_cluster(config_->network.links);
  } else if (links) {
    costs.node_link = links->node_link;
    costs.network_link = links->network_link;
  }
  // A rehearsal's plan was made before it began, from costs that it obeys.
  const bool rehearses = config_->device == Device::rehearsal;
  const StepPlan plan =
      rehearses ? read_step_plan(*config_, {}, links_) : make_step_plan(*config_, costs, links);
  directory_->write_costs(cost_file_text(costs), plan_files(plan));
  const double predicted = plan.timeline.step.value;
  const std::string links_from =
      config_->network.emulates() ? "the links of " + config_->network.links : "probed links";
  log_info(fmt::format("step time: {:.4f} s measured, {:.4f} s predicted from {}{} ({:+.1f} %)",
                       measured_seconds,
                       predicted,
                       rehearses ? "the costs it was given" : "the measured costs of ops",
                       links ? " and " + links_from : "",
                       100.0 * (predicted / measured_seconds - 1.0)));
}

}  // namespace slackline
