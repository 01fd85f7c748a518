#include "tools/run/measure/step_accounts.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "parallel/plan/class_bytes.h"
#include "parallel/predict/outer_round.h"
#include "tools/run/measure/compute_seconds.h"

namespace slackline {

namespace {

// Steps that have ended and are not handed out while the next one runs.
constexpr std::size_t kHeldSteps = 2;

// A step's sums over ranks: five of seconds, three of each axis, four of an outer round, then those
// of samples.
constexpr std::size_t kFirstAxisSum = 5;
constexpr std::size_t kAxisSums = 3;
constexpr std::size_t kFirstRoundSum = kFirstAxisSum + kAxisSums * kReportedAxes.size();
constexpr std::size_t kRoundSums = 4;
constexpr std::size_t kFirstSampleSum = kFirstRoundSum + kRoundSums;

// `sums` begin with those of the first class.
std::vector<ClassQuality> qualities_of(const StepSamples& samples, std::span<const double> sums) {
  std::vector<ClassQuality> qualities;
  for (std::size_t i = 0; i < samples.num_classes(); ++i) {
    std::array<double, kNumMessageSums> numbers{};
    std::ranges::copy(sums.subspan(i * kNumMessageSums, kNumMessageSums), numbers.begin());
    const MessageSums of_class = sums_of(numbers);
    if (of_class.elements > 0.0) {  // none where no message of the class shrinks
      qualities.push_back(quality_of(samples.classes()[i], of_class));
    }
  }
  return qualities;
}

// What a rank adds to the sums of an outer round. A run's last end waits for a second one.
std::array<double, kRoundSums> round_sums(const std::vector<RoundTravel>& arrived) {
  if (arrived.empty() || !arrived.front().takes_part) {
    return {};
  }
  const RoundTravel& round = arrived.front();
  double waited = 0.0;
  for (const RoundTravel& one : arrived) {
    waited += one.waited;
  }
  return {1.0, round.seconds(), round.period_seconds(), waited};
}

// Returns means over the ranks that took part; `sums` are those of the round.
std::optional<TravelRecord> travel_of(const std::vector<RoundTravel>& arrived,
                                      std::span<const double> sums) {
  if (arrived.empty() || sums[0] == 0.0) {
    return std::nullopt;
  }
  return TravelRecord{.sent_step = arrived.front().step,
                      .round_seconds = sums[1] / sums[0],
                      .period_seconds = sums[2] / sums[0],
                      .wait_seconds = sums[3] / sums[0]};
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
  wait_times_.beside_steps([&] { samples = model_->channels().take_samples(); });
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
  const auto of_round = round_sums(step.rounds.arrived);
  sums.insert(sums.end(), of_round.begin(), of_round.end());
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
  for (std::size_t i = 0; i < record.axes.size(); ++i) {
    const std::size_t first = kFirstAxisSum + kAxisSums * i;
    const double plain = i == kOuterAxis ? plain_bytes_of_a_sent_one(record.step) : 1.0;
    record.axes[i] = {
        .raw_bytes = plain * sums[first] + saved[i],
        .sent_bytes = sums[first],
        .across_bytes = has_groups ? std::make_optional(sums[first + 1]) : std::nullopt,
        .exposed_seconds = mean(first + 2)};
  }
  if (record.round) {
    record.round->travel =
        travel_of(ended.step.rounds.arrived, std::span(sums).subspan(kFirstRoundSum, kRoundSums));
  }
  if (ended.samples) {
    record.compression = qualities_of(*ended.samples, std::span(sums).subspan(kFirstSampleSum));
  }
  ended.step.next_step = record.step + static_cast<std::int64_t>(ended_.size()) + 1;
  AccountedStep step = std::move(ended.step);
  ended_.pop_front();
  return step;
}

double StepAccounts::plain_bytes_of_a_sent_one(std::int64_t step) {
  const std::optional<CodecSetting> codec = config_->compress.codec_of_rounds();
  if (!codec || !config_->outer.is_on() || step <= config_->compress.warmup_steps) {
    return 1.0;
  }
  if (plain_bytes_of_rounds_ == 0.0) {
    const auto bytes = [&](const std::optional<CodecSetting>& setting) {
      const int workers = config_->parallel.num_workers();
      const RoundKind kind{.codec = setting};
      return static_cast<double>(outer_round(config_->mesh_job(), workers, kind, {}).bytes);
    };
    plain_bytes_of_rounds_ = bytes(std::nullopt) / bytes(codec);
  }
  return plain_bytes_of_rounds_;
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

}  // namespace slackline
