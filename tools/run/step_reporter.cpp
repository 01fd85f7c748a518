#include "tools/run/step_reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/comm/links/link_probe.h"
#include "core/comm/transport/mpi_world.h"
#include "core/comm/world.h"
#include "core/log.h"
#include "core/terminal.h"
#include "model/cost/flops.h"
#include "parallel/choose/compression_guard.h"
#include "parallel/choose/critical_path.h"
#include "parallel/predict/class_bytes.h"
#include "tools/config/config_job.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/step_plan.h"
#include "tools/run/compute_seconds.h"

namespace slackline {

namespace {

// Of a process, from 1, where nothing is chosen: the first step is slower, and costs do not change
// much after some.
constexpr std::int64_t kFirstRecordedStep = 2;
constexpr std::int64_t kLastRecordedStep = 6;
constexpr std::int64_t kTracedSteps = 2;

// Sums over ranks that every step has, before those of samples.
constexpr std::size_t kNumStepSums = 5 + 2 * kReportedAxes.size();

}  // namespace

StepReporter::StepReporter(const TrainConfig& config,
                           const Machine& machine,
                           MeshModel& model,
                           Groups& groups,
                           RunDirectory& directory)
    : config_(&config),
      machine_(machine),
      model_(&model),
      world_(groups.world),
      directory_(&directory),
      wait_times_(groups),
      recorder_(config.mesh_job(), groups),
      chooser_(config, machine.num_threads, model, *groups.world) {
  if (config.network.emulates()) {
    emulated_ = links_of_run(config.network, {});
  }
  for (const PlanFromStep& row : model.channels().plans()) {
    note_saved_bytes(row);
  }
}

void StepReporter::note_saved_bytes(const PlanFromStep& row) {
  std::vector<double>& saved = saved_bytes_[row.from_step];
  saved = saved_axis_bytes(config_->mesh_job(), row.plan);
  for (double& bytes : saved) {
    bytes /= config_->message_scale();
  }
}

double StepReporter::saved_bytes(std::int64_t step, std::size_t axis) const {
  return std::prev(saved_bytes_.upper_bound(step))->second[axis];
}

void StepReporter::begin_step(std::int64_t step) {
  if (num_begun_++ == 0) {
    begin_run(step);
  }
  if (probe_due_) {
    probe_anew();
  }
  model_->keep_messages(chooser_.measurement() && step == chooser_.measurement()->last);
  wait_times_.begin_step();
  start_ = Clock::now();
}

// Where a plan is yet to be chosen, steps under it are traced.
void StepReporter::begin_run(std::int64_t step) {
  chooser_.begin(step);
  first_traced_ = step + kFirstRecordedStep - 1;
  if (const auto& measurement = chooser_.measurement()) {
    const std::int64_t settled = measurement->last + 2;
    if (measurement->at_once && config_->run.steps >= settled + kTracedSteps - 1) {
      first_traced_ = settled;
    }
  } else {
    told_ = {.first = step + kFirstRecordedStep - 1, .last = step + kLastRecordedStep - 1};
  }
}

const PlanChooser::Measurement& StepReporter::measured() const {
  return chooser_.measurement() ? *chooser_.measurement() : told_;
}

void StepReporter::end_step(const StepRecord& record) {
  const double own_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (!ended_.empty()) {
    add_up(ended_.back());
  }
  wait_times_.end_step();
  std::optional<StepSamples> samples;
  wait_times_.beside_steps([&] { samples = model_->channels().take_samples(); });
  if (ended_.size() == 2) {
    report(ended_.front());
    ended_.pop_front();
  }
  ended_.push_back({.record = record,
                    .times = model_->step_times(),
                    .own_seconds = own_seconds,
                    .samples = std::move(samples)});
  if (world_->size() == 1 || (measured().at_once && record.step == measured().last)) {
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
  const double not_waited = std::max(0.0, step.own_seconds - waits.bubble - waits.exposed);
  // A CUDA device measures passes by its own clock, which may run ahead of the step's.
  const double computed =
      std::min(compute_seconds(step.times, WaitStretches(step.transfers)), not_waited);
  step.sums = {step.own_seconds, computed, waits.bubble, waits.exposed, not_waited - computed};
  for (const StepWaits::Axis& axis : waits.axes) {
    step.sums.insert(step.sums.end(), {axis.bytes_sent, axis.exposed});
  }
  if (step.samples) {
    for (const MessageSums& sums : step.samples->finish()) {
      const auto numbers = numbers_of(sums);
      step.sums.insert(step.sums.end(), numbers.begin(), numbers.end());
    }
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
  record.compression = qualities_of(step);
  if (is_first_rank()) {
    directory_->record(record);
    print(record);
  }
  guard(record);
  watch(record);
  const std::int64_t traced = record.step - first_traced_;
  if (config_->trace && traced >= 0 && traced < kTracedSteps) {
    trace_times(step);
  }
  if (measured().has(record.step)) {
    record_times(step);
  }
}

std::vector<ClassQuality> StepReporter::qualities_of(const Ended& step) const {
  std::vector<ClassQuality> qualities;
  for (std::size_t i = 0; step.samples && i < step.samples->num_classes(); ++i) {
    std::array<double, kNumMessageSums> numbers{};
    std::copy_n(step.sums.begin() + static_cast<std::ptrdiff_t>(kNumStepSums + i * kNumMessageSums),
                kNumMessageSums,
                numbers.begin());
    const MessageSums sums = sums_of(numbers);
    if (sums.elements > 0.0) {  // none where no message of the class shrinks
      qualities.push_back(quality_of(step.samples->classes()[i], sums));
    }
  }
  return qualities;
}

void StepReporter::guard(const StepRecord& record) {
  GuardRule rule{.max_error = max_errors_of(config_->compress)};
  const bool fixed = config_->compress.policy == CompressionPolicy::replay;
  if (record.compression.empty() || rule.max_error.empty() || fixed || record.skipped) {
    return;
  }
  Channels& channels = model_->channels();
  const MeshJob job = config_->mesh_job();
  if (config_->compress.policy == CompressionPolicy::critical_path) {
    note_errors(record);
    rule.candidates = candidates_of(config_->compress, job);
    rule.errors = channels.errors();
  }
  const std::optional<GuardedPlan> next =
      guarded_plan(job, channels.plans(), record.step, record.compression, rule);
  if (!next) {
    return;
  }
  channels.add_plan(next->plan);
  note_saved_bytes(next->plan);
  if (is_first_rank()) {
    for (const std::string& change : next->changes) {
      log_info(change);
    }
    directory_->write_plan(plan_files(current_plan()));
  }
}

void StepReporter::note_errors(const StepRecord& record) {
  Channels& channels = model_->channels();
  const CompressionPlan& plan = plan_at(channels.plans(), record.step).plan;
  for (const ClassQuality& quality : record.compression) {
    const CodecSetting& codec = *plan.codec_of(quality.members);
    const double lost = lost_share(quality, codec.error_feedback);
    if (std::isfinite(lost)) {
      channels.errors().note_sample(
          {.members = quality.members, .codec = codec, .relative_error = lost});
    }
  }
}

StepPlan StepReporter::current_plan() const {
  const PlanHistory& plans = model_->channels().plans();
  // A rehearsal's plan was made before it began, from costs that it obeys.
  if (!costs_ || config_->device == Device::rehearsal) {
    return read_step_plan(plan_job(*config_), {}, machine_.links, plans);
  }
  return make_step_plan(plan_job(*config_), costs_, links(), plans);
}

void StepReporter::print(const StepRecord& record) {
  recent_step_seconds_ = recent_step_seconds_ == 0.0
                             ? record.step_seconds
                             : 0.9 * recent_step_seconds_ + 0.1 * record.step_seconds;
  const std::string line = console_line(record,
                                        {.steps = config_->run.steps,
                                         .flops_per_token = flops_per_token(config_->model).causal,
                                         .peak_flops = machine_.peak_flops,
                                         .seconds_per_step = recent_step_seconds_});
  const bool due = record.step % config_->run.log_every == 0 || record.step == config_->run.steps;
  // mpirun gives ranks a terminal whatever its own output goes to.
  const bool redraws = isatty(STDOUT_FILENO) != 0 && !launched_by_mpi();
  if (redraws) {
    redraw_line(Output::standard, line);  // replaced by the next step's where this one is not due
  }
  if (due) {
    print_lines(redraws ? "\n" : line + "\n");
  }
}

void StepReporter::record_times(const Ended& step) {
  const PlanChooser::Measurement& measurement = measured();
  const double seconds = step.record.step_seconds;
  if (step.record.step == measurement.first) {
    recorder_.restart();
    recorded_seconds_ = measurement.at_once ? seconds : 0.0;
  }
  recorder_.add(step.times,
                step.transfers,
                measurement.at_once ? StepRecorder::Steps::quickest : StepRecorder::Steps::mean);
  recorded_seconds_ =
      measurement.at_once ? std::min(recorded_seconds_, seconds) : recorded_seconds_ + seconds;
  if (step.record.step == measurement.last) {
    tell_costs();
  }
}

void StepReporter::trace_times(const Ended& step) {
  recorder_.trace(step.record.step, step.times, step.transfers);
  if (step.record.step == first_traced_ + kTracedSteps - 1) {
    const std::string trace = recorder_.trace_text();
    if (is_first_rank()) {
      directory_->write_trace(trace);
    }
  }
}

LinkSpeeds StepReporter::links() const {
  return emulated_ ? emulated_ : machine_.links;
}

void StepReporter::tell_costs() {
  const Clock::time_point begin = Clock::now();
  const bool chooses = chooser_.measurement().has_value();
  const double measured_seconds =
      measured().at_once ? recorded_seconds_
                         : recorded_seconds_ / static_cast<double>(recorder_.num_steps());
  if (chooses) {
    chooser_.measure_codecs(recorder_);
  }
  StepCosts costs = recorder_.costs();
  const bool emulates = config_->network.emulates();
  if (is_first_rank()) {
    if (machine_.links && !emulates) {
      costs.node_link = machine_.links->node_link;
      costs.network_link = machine_.links->network_link;
    }
    costs.codecs_take_compute = machine_.codecs_take_compute;
    costs.errors = model_->channels().errors();
    costs_ = std::move(costs);
    const StepPlan plan = current_plan();
    directory_->write_costs(cost_file_text(*costs_));
    directory_->write_plan(plan_files(plan));
    const double predicted = plan.timeline.step.value;
    const bool rehearses = config_->device == Device::rehearsal;
    const std::string links_from =
        emulates ? "the links of " + config_->network.links : "probed links";
    log_info(fmt::format("step time: {:.4f} s measured, {:.4f} s predicted from {}{} ({:+.1f} %)",
                         measured_seconds,
                         predicted,
                         rehearses ? "the costs it was given" : "the measured costs of ops",
                         machine_.links || emulates ? " and " + links_from : "",
                         100.0 * (predicted / measured_seconds - 1.0)));
  }
  if (chooses) {
    choose_plan();
    if (is_first_rank()) {
      const std::chrono::duration<double> took = Clock::now() - begin;
      log_info(fmt::format("critical_path: {:.3f} s to try codecs and to plan", took.count()));
    }
  }
}

void StepReporter::choose_plan() {
  const std::optional<PlanFromStep> chosen =
      chooser_.choose(costs_.value_or(StepCosts{}), is_first_rank() ? links() : LinkSpeeds{});
  if (chosen) {
    note_saved_bytes(*chosen);
  }
  if (!is_first_rank()) {
    return;
  }
  if (!chosen) {
    log_info("critical_path: what is compressed stays as it was");
    return;
  }
  const StepPlan plan = current_plan();
  directory_->write_plan(plan_files(plan));
  const auto compressed = std::ranges::count_if(
      chosen->plan.classes,
      [](const CompressionPlan::Class& row) { return row.codec.has_value(); });
  log_info(
      fmt::format("critical_path: from step {} {} of {} classes of transfers are compressed; "
                  "{:.4f} s a step predicted; plan.txt says why",
                  chosen->from_step,
                  compressed,
                  chosen->plan.classes.size(),
                  plan.timeline.step.value));
}

// What is measured anew are the steps that begin from here on, reported after those under way.
void StepReporter::watch(const StepRecord& record) {
  if (record.skipped || !chooser_.has_drifted(record.step, record.step_seconds)) {
    return;
  }
  if (is_first_rank()) {
    log_info(
        fmt::format("step {}: steps have drifted from {:.4f} s; links and costs are measured "
                    "anew",
                    record.step,
                    chooser_.usual_seconds()));
  }
  const auto under_way = static_cast<std::int64_t>(ended_.size());  // this one among them
  chooser_.measure_anew(record.step + under_way + 1);
  probe_due_ = machine_.links && !config_->network.emulates();
}

void StepReporter::probe_anew() {
  probe_due_ = false;
  flush();
  model_->finish_gather();
  machine_.links = probe_links(*world_);
  world_->set_links(*machine_.links);
}

}  // namespace slackline
