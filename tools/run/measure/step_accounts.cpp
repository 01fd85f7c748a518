#include "tools/run/measure/step_accounts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/comm/text_exchange.h"
#include "core/host_name.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/outer_round.h"
#include "parallel/sync/outer_plan.h"
#include "tools/run/measure/compute_seconds.h"

namespace slackline {

namespace {

// Steps that have ended and are not handed out while the next one runs.
constexpr std::size_t kHeldSteps = 2;

// A step's sums over ranks: five of seconds, three of each axis, what each rank computed in a place
// of its own, those of an outer round that ended with it, then those of samples.
constexpr std::size_t kFirstAxisSum = 5;
constexpr std::size_t kAxisSums = 3;
constexpr std::size_t kFirstComputeSum = kFirstAxisSum + kAxisSums * kReportedAxes.size();
constexpr std::size_t kRoundSums = 3;  // of each rank, which has places of its own

// `sums` begin with those of the first class.
std::vector<ClassQuality> qualities_of(const StepSamples& samples, std::span<const double> sums) {
  std::vector<ClassQuality> qualities;
  for (std::size_t i = 0; i < samples.classes().size(); ++i) {
    std::array<double, kNumMessageSums> numbers{};
    std::ranges::copy(sums.subspan(i * kNumMessageSums, kNumMessageSums), numbers.begin());
    const MessageSums of_class = sums_of(numbers);
    if (of_class.elements > 0.0) {  // none where no message of the class shrinks
      qualities.push_back(quality_of(samples.classes()[i], of_class));
    }
  }
  return qualities;
}

std::size_t first_round_sum(const Communicator& world) {
  return kFirstComputeSum + static_cast<std::size_t>(world.size());
}

std::size_t num_round_sums(const StepRecord& record, const Communicator& world) {
  return record.round ? kRoundSums * static_cast<std::size_t>(world.size()) : 0;
}

// Writes what a rank saw of the round that its step's end used. A run's last end waits for a second
// one. Nothing is written by ranks without a share of it.
void write_travel(const std::vector<RoundTravel>& arrived, std::span<double> places) {
  if (arrived.empty() || !arrived.front().takes_part) {
    return;
  }
  places[0] = arrived.front().seconds();
  places[1] = arrived.front().period_seconds();
  for (const RoundTravel& round : arrived) {
    places[2] += round.waited;
  }
}

// Returns what the rank saw to which the round took longest, since all wait for it. `sums` are
// those of the round.
std::optional<TravelRecord> travel_of(const std::vector<RoundTravel>& arrived,
                                      std::span<const double> sums) {
  std::span<const double> slowest;
  for (; !sums.empty(); sums = sums.subspan(kRoundSums)) {
    slowest = slowest.empty() || sums[0] > slowest[0] ? sums.first(kRoundSums) : slowest;
  }
  if (arrived.empty() || slowest.empty()) {
    return std::nullopt;
  }
  return TravelRecord{.sent_step = arrived.front().step,
                      .round_seconds = slowest[0],
                      .period_seconds = slowest[1],
                      .wait_seconds = slowest[2]};
}

}  // namespace

StepAccounts::StepAccounts(const TrainConfig& config, MeshModel& model, Groups& groups)
    : config_(&config), model_(&model), world_(groups.world), wait_times_(groups) {}

void StepAccounts::begin_step() {
  wait_times_.begin_step();
  start_ = Clock::now();
}

std::optional<AccountedStep> StepAccounts::end_step(const StepRecord& record,
                                                    const RoundTravels& rounds) {
  const double own_seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (!ended_.empty()) {
    add_up(ended_.back());
  }
  wait_times_.end_step();
  std::optional<StepSamples> samples;
  wait_times_.beside_steps([&] {
    samples = model_->channels().take_samples();
    if (hosts_.empty()) {
      hosts_ = exchange_texts(*world_, host_name(), "names of hosts");
    }
  });
  std::optional<AccountedStep> oldest;
  if (ended_.size() == kHeldSteps) {
    oldest = take_oldest();
  }
  ended_.push_back({.step = {.record = record, .times = model_->step_times(), .rounds = rounds},
                    .own_seconds = own_seconds,
                    .samples = std::move(samples)});
  return oldest;
}

std::vector<AccountedStep> StepAccounts::flush() {
  if (!ended_.empty()) {
    add_up(ended_.back());
  }
  std::vector<AccountedStep> steps;
  while (!ended_.empty()) {
    steps.push_back(take_oldest());
  }
  return steps;
}

void StepAccounts::add_up(Ended& ended) {
  StepWaits waits = wait_times_.finish_step();
  AccountedStep& step = ended.step;
  step.transfers = std::move(waits.transfers);
  for (RoundTravel& round : step.rounds.arrived) {
    correct_arrival(round, step.transfers);
  }
  const double not_waited = std::max(0.0, ended.own_seconds - waits.bubble - waits.exposed);
  // A CUDA device measures passes by its own clock, which may run ahead of the step's.
  const double computed =
      std::min(compute_seconds(step.times, WaitStretches(step.transfers)), not_waited);
  std::vector<double>& sums = ended.sums;
  sums = {ended.own_seconds, computed, waits.bubble, waits.exposed, not_waited - computed};
  for (const StepWaits::Axis& axis : waits.axes) {
    sums.insert(sums.end(), {axis.bytes_sent, axis.bytes_across, axis.exposed});
  }
  const std::size_t first_round = first_round_sum(*world_);
  const auto rank = static_cast<std::size_t>(world_->rank());
  sums.resize(first_round + num_round_sums(step.record, *world_));
  sums[kFirstComputeSum + rank] = computed;
  if (step.record.round) {
    const std::size_t own = first_round + kRoundSums * rank;
    write_travel(step.rounds.arrived, std::span(sums).subspan(own, kRoundSums));
  }
  if (ended.samples) {
    for (const MessageSums& of_class : ended.samples->finish()) {
      const auto numbers = numbers_of(of_class);
      sums.insert(sums.end(), numbers.begin(), numbers.end());
    }
  }
  ended.sum = world_->all_reduce(Tensor(std::span(sums)), {.what = "accounts of the step"});
}

AccountedStep StepAccounts::take_oldest() {
  Ended& ended = ended_.front();
  ended.sum.wait();
  const std::vector<double>& sums = ended.sums;
  const auto mean = [&](std::size_t i) { return sums[i] / world_->size(); };
  StepRecord& record = ended.step.record;
  record.step_seconds = mean(0);
  record.seconds = {.compute = mean(1), .bubble = mean(2), .exposed = mean(3), .other = mean(4)};
  const std::vector<double>& saved = saved_bytes(record.step);
  const bool has_groups = config_->parallel.num_groups() > 1;
  const double workers = config_->parallel.num_workers();  // which send alike
  for (std::size_t i = 0; i < record.axes.size(); ++i) {
    const std::size_t first = kFirstAxisSum + kAxisSums * i;
    const double plain = i == kOuterAxis ? plain_bytes_of_a_sent_one(record.step) : 1.0;
    record.axes[i] = {
        .raw_bytes = workers * (plain * sums[first] + saved[i]),
        .sent_bytes = workers * sums[first],
        .across_bytes = has_groups ? std::make_optional(workers * sums[first + 1]) : std::nullopt,
        .exposed_seconds = mean(first + 2)};
  }
  const auto computed = std::span(sums).subspan(kFirstComputeSum, hosts_.size());
  const auto slowest =
      static_cast<std::size_t>(std::ranges::max_element(computed) - computed.begin());
  record.slowest = {.rank = static_cast<int>(slowest),
                    .host = hosts_[slowest],
                    .compute_seconds = computed[slowest]};
  const auto rest = std::span(sums).subspan(first_round_sum(*world_));
  const std::size_t round_sums = num_round_sums(record, *world_);
  if (record.round) {
    record.round->travel = travel_of(ended.step.rounds.arrived, rest.first(round_sums));
  }
  if (ended.samples) {
    record.compression = qualities_of(*ended.samples, rest.subspan(round_sums));
  }
  ended.step.next_step = record.step + static_cast<std::int64_t>(ended_.size()) + 1;
  AccountedStep step = std::move(ended.step);
  ended_.pop_front();
  return step;
}

double StepAccounts::plain_bytes_of_a_sent_one(std::int64_t step) {
  const RoundKind coded{.codec = config_->compress.codec_of_rounds()};
  const OuterConfig& outer = config_->outer;
  const bool is_last = step == config_->run.steps;
  const bool is_mean = outer.ending == OuterEnding::mean && is_last;
  if (!coded.codec || !outer.is_on() || step <= config_->compress.warmup_steps || is_mean) {
    return 1.0;
  }
  if (plain_bytes_.empty()) {
    const auto bytes = [&](const RoundKind& kind) {
      const int workers = config_->parallel.num_workers();
      return fragment_bytes(config_->mesh_job(), workers, kind, outer.fragments);
    };
    plain_bytes_ = bytes({});
    coded_bytes_ = bytes(coded);
  }
  // A period that the run chooses is one of whole models.
  const std::int64_t every = outer.has_fragments() ? *outer.period / outer.fragments : 1;
  std::size_t plain = 0;
  std::size_t sent = 0;
  for (const int fragment : due_fragments(step, every, outer.fragments, is_last)) {
    plain += plain_bytes_[static_cast<std::size_t>(fragment)];
    sent += coded_bytes_[static_cast<std::size_t>(fragment)];
  }
  return sent == 0 ? 1.0 : static_cast<double>(plain) / static_cast<double>(sent);
}

const std::vector<double>& StepAccounts::saved_bytes(std::int64_t step) {
  const PlanFromStep& row = plan_at(model_->channels().plans(), step);
  const auto [saved, is_new] = saved_bytes_.try_emplace(row.from_step);
  if (is_new) {
    saved->second = saved_axis_bytes(config_->mesh_job(), row.plan);
    for (double& bytes : saved->second) {
      bytes /= config_->message_scale();
    }
  }
  return saved->second;
}

void correct_arrival(RoundTravel& round, std::span<const Wait> transfers) {
  if (round.waited > 0.0) {
    return;
  }
  double last = 0.0;
  for (const Wait& wait : transfers) {
    // A run's last end also waits for a round that it sends itself.
    if (wait.axis == kOuterAxis && wait.record.finished <= round.arrived) {
      last = std::max(last, wait.record.finished);
    }
  }
  if (last > round.sent) {
    round.arrived = last;
  }
}

}  // namespace slackline
