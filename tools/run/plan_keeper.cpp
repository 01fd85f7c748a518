#include "tools/run/plan_keeper.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_measurement.h"
#include "core/comm/links/link_probe.h"
#include "core/comm/text_exchange.h"
#include "core/log.h"
#include "parallel/channel/message_trial.h"
#include "parallel/choose/compression_guard.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/choose/critical_path.h"
#include "tools/config/config_job.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/plan_json.h"

namespace slackline {

namespace {

// So many steps are measured where nothing is chosen by costs, which do not change much after some.
constexpr std::int64_t kToldSteps = 5;

// Steps that are measured to choose by them, and the first of a plan, in which codecs begin, that
// is not.
constexpr std::int64_t kFirstSteps = kFirstChosenStep - 1;
constexpr std::int64_t kRefiningSteps = 4;
constexpr std::int64_t kDriftedSteps = 5;

// Notes what the codecs of a sampled step lost.
void note_errors(const StepRecord& record, Channels& channels) {
  const CompressionPlan& plan = plan_at(channels.plans(), record.step).plan;
  for (const ClassQuality& quality : record.compression) {
    const CodecSetting& codec = *plan.setting_of(quality.members);
    const double lost = lost_share(quality, codec.error_feedback);
    if (std::isfinite(lost)) {
      channels.errors().note_sample(
          {.members = quality.members, .codec = codec, .relative_error = lost});
    }
  }
}

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

// The first step of a process is slower, and so is that of a plan, in which codecs begin.
MeasuredSteps told_steps(std::int64_t first_step,
                         std::int64_t last_step,
                         const PlanHistory& plans) {
  const auto behind = [](std::int64_t step) {
    return MeasuredSteps{.first = step + 1, .last = step + kToldSteps};
  };
  MeasuredSteps steps = behind(first_step);
  for (const PlanFromStep& plan : plans) {
    if (steps.has(plan.from_step) && behind(plan.from_step).last <= last_step) {
      steps = behind(plan.from_step);
    }
  }
  return steps;
}

PlanKeeper::PlanKeeper(const TrainConfig& config,
                       const Options& options,
                       MeshModel& model,
                       RunDirectory& directory)
    : config_(&config),
      options_(options),
      model_(&model),
      directory_(&directory),
      chooses_(config.compress.policy == CompressionPolicy::critical_path &&
               config.device != Device::rehearsal && !model.channels().plans().empty()) {
  options_.links = links_of_run(config.network, config.device, options.links);
  if (chooses_) {
    const PlanHistory& plans = model.channels().plans();
    measurement_ = first_measured_steps(options.first_step, config.compress.warmup_steps, plans);
    watched_from_ = plans.back().from_step;
  }
  if (!measurement_) {
    told_ = told_steps(options.first_step, config.run.steps, model.channels().plans());
  }
}

const MeasuredSteps& PlanKeeper::measured() const {
  return measurement_ ? *measurement_ : told_;
}

void PlanKeeper::probe_anew() {
  probe_is_due_ = false;
  model_->finish_gather();
  Communicator& world = *model_->groups().world;
  const double begin = world.now();
  options_.links = probe_links(world);
  world.set_links(*options_.links);
  if (world.rank() == 0) {
    log_info(fmt::format("links probed anew in {:.3f} s", world.now() - begin));
  }
}

void PlanKeeper::begin_step(std::int64_t step) {
  model_->keep_messages(measurement_ && step == measurement_->last);
}

void PlanKeeper::judge(const AccountedStep& step) {
  guard(step.record);
  watch(step);
}

void PlanKeeper::guard(const StepRecord& record) {
  GuardRule rule{.max_error = max_errors_of(config_->compress)};
  const bool fixed = config_->compress.policy == CompressionPolicy::replay;
  if (record.compression.empty() || rule.max_error.empty() || fixed || record.skipped) {
    return;
  }
  Channels& channels = model_->channels();
  const MeshJob job = config_->mesh_job();
  if (config_->compress.policy == CompressionPolicy::critical_path) {
    note_errors(record, channels);
    rule.candidates = candidates_of(config_->compress, job);
    rule.errors = channels.errors();
  }
  const std::optional<GuardedPlan> next =
      guarded_plan(job, channels.plans(), record.step, record.compression, rule);
  if (!next) {
    return;
  }
  channels.add_plan(next->plan);
  if (is_first_rank()) {
    for (const std::string& change : next->changes) {
      log_info(change);
    }
    static_cast<void>(write_plan(next->plan.from_step));
  }
}

// What is measured anew are the steps that begin from here on.
void PlanKeeper::watch(const AccountedStep& step) {
  const StepRecord& record = step.record;
  if (record.skipped || !chooses_ || measurement_) {
    return;
  }
  const std::int64_t last = model_->channels().plans().back().from_step;
  if (last != watched_from_) {
    watched_from_ = last;
    watch_.restart();
  }
  if (record.step < watched_from_ || !watch_.add(record.step_seconds)) {
    return;
  }
  if (is_first_rank()) {
    log_info(
        fmt::format("step {}: steps have drifted from {:.4f} s; links and costs are measured "
                    "anew",
                    record.step,
                    watch_.usual_seconds()));
  }
  measurement_ = {.first = step.next_step, .last = step.next_step + kDriftedSteps - 1};
  probe_is_due_ = probed_links().has_value();
}

void PlanKeeper::take_costs(CostRecorder& recorder) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const bool chooses = measurement_.has_value();
  if (chooses) {
    measure_codecs(recorder);
  }
  StepCosts costs = recorder.costs();
  if (is_first_rank()) {
    tell_costs(std::move(costs), recorder.step_seconds());
  }
  if (chooses) {
    choose_plan();
    if (is_first_rank()) {
      const std::chrono::duration<double> took = Clock::now() - begin;
      log_info(fmt::format("critical_path: {:.3f} s to try codecs and to plan", took.count()));
    }
  }
}

void PlanKeeper::measure_codecs(CostRecorder& recorder) const {
  const MeshJob job = config_->mesh_job();
  const Workers workers{options_.num_threads, job.device};
  recorder.codecs().add_beside_steps(slackline::measure_codecs(
      candidate_messages(config_->compress, job), job.model.hidden, workers));
  for (const CodecError& error : try_candidates(model_->kept_messages(),
                                                candidates_of(config_->compress, job),
                                                compressible_classes(job),
                                                workers,
                                                *model_->groups().world)) {
    model_->channels().errors().note_trial(error);
  }
  model_->kept_messages().begin_step();
}

void PlanKeeper::tell_costs(StepCosts costs, double measured_seconds) {
  if (const LinkSpeeds probed = probed_links()) {
    costs.nodes = probed->nodes;
    costs.node_link = probed->node_link;
    costs.network_link = probed->network_link;
  }
  costs.codecs_take_compute = options_.codecs_take_compute;
  costs.errors = model_->channels().errors();
  costs_ = std::move(costs);
  directory_->write("costs.json", cost_file_text(*costs_));
  const double predicted = write_plan(measured().last);
  const bool rehearses = config_->device == Device::rehearsal;
  const NetworkConfig& network = config_->network;
  const std::string links_from =
      network.emulates() ? "the links of " + network.links : "probed links";
  log_info(fmt::format("step time: {:.4f} s measured, {:.4f} s predicted from {}{} ({:+.1f} %)",
                       measured_seconds,
                       predicted,
                       rehearses ? "the costs it was given" : "the measured costs of ops",
                       options_.links ? " and " + links_from : "",
                       100.0 * (predicted / measured_seconds - 1.0)));
}

void PlanKeeper::choose_plan() {
  const bool first = measurement_->at_once;
  const PlanHistory& plans = model_->channels().plans();
  std::string own;
  if (is_first_rank()) {
    const std::int64_t from_step = measurement_->last + (first ? 1 : kStepsToChange);
    own = compression_plan_json({.from_step = std::max(from_step, plans.back().from_step + 1),
                                 .plan = choose_critical_path(config_->compress,
                                                              config_->mesh_job(),
                                                              *costs_,
                                                              options_.links,
                                                              guard_limits(plans))
                                             .plan});
  }
  const PlanFromStep chosen =
      read_compression_plan(broadcast_text(*model_->groups().world, 0, own, "the chosen plan"));
  watch_.restart();
  measurement_.reset();
  if (first) {
    measurement_ = {.first = chosen.from_step + 1, .last = chosen.from_step + kRefiningSteps};
  }
  const auto same_codecs = [](const CompressionPlan::Class& a, const CompressionPlan::Class& b) {
    return a.members == b.members && a.codec == b.codec;
  };
  const bool stays =
      !first && std::ranges::equal(chosen.plan.classes, plans.back().plan.classes, same_codecs);
  if (!stays) {
    model_->channels().add_plan(chosen);
  }
  if (is_first_rank() && stays) {
    log_info("critical_path: what is compressed stays as it was");
  } else if (is_first_rank()) {
    tell_choice(chosen);
  }
}

void PlanKeeper::tell_choice(const PlanFromStep& chosen) {
  const double predicted = write_plan(chosen.from_step);
  const auto compressed = std::ranges::count_if(
      chosen.plan.classes, [](const CompressionPlan::Class& row) { return row.codec.has_value(); });
  log_info(
      fmt::format("critical_path: from step {} {} of {} classes of transfers are compressed; "
                  "{:.4f} s a step predicted; plan.txt says why",
                  chosen.from_step,
                  compressed,
                  chosen.plan.classes.size(),
                  predicted));
  point_to_rounds(predicted);
}

// What compression leaves of the waiting, rounds of workers may hide, where all of it is for other
// data ranks.
void PlanKeeper::point_to_rounds(double predicted) const {
  constexpr double kMuchLonger = 2.0;
  const MeshJob job = config_->mesh_job();
  const double computing = predicted_timeline(MeshLists(job), *costs_, std::nullopt).step.value;
  if (job.parallel.data > 1 && job.parallel.data == job.parallel.num_ranks() &&
      predicted > kMuchLonger * computing) {
    log_info(fmt::format(
        "critical_path: a step without links would take {:.4f} s; outer rounds, in which "
        "workers meet once in many steps, may hide what is left (docs/outer.md)",
        computing));
  }
}

double PlanKeeper::write_plan(std::int64_t step) const {
  const PlanHistory& plans = model_->channels().plans();
  // A rehearsal's plan was made before it began, from costs that it obeys.
  const bool by_costs = costs_ && config_->device != Device::rehearsal;
  const StepPlan plan = by_costs ? make_step_plan(plan_job(*config_), costs_, options_.links, plans)
                                 : read_step_plan(plan_job(*config_), {}, probed_links(), plans);
  directory_->write_plan(plan_files(plan));
  return plan_at(plan.compression, step).step.value;
}

LinkSpeeds PlanKeeper::probed_links() const {
  return config_->network.emulates() ? LinkSpeeds{} : options_.links;
}

}  // namespace slackline
