// What boundaries and gradients owe when a plan changes between steps.

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/equivalence/sampled_step.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

using schedule::Phase;
using schedule::Site;

// Catch2 counts on one thread at a time.
std::mutex& check_mutex() {
  static std::mutex mutex;
  return mutex;
}

// All residuals that ranks keep, by what begins their names; each once.
std::map<std::string, std::vector<float>> residuals_of(Channels& channels) {
  std::map<std::string, std::vector<float>> residuals;
  for (const ChannelState& state : channels.state()) {
    if (!state.name.ends_with(".right_factor")) {
      residuals[state.name] = values_of(state.data);
    }
  }
  return residuals;
}

// Elements of all right factors, which are as many for each of a codec's ranks.
std::size_t elements_of_factors(Channels& channels) {
  std::size_t elements = 0;
  for (const ChannelState& state : channels.state()) {
    elements += state.name.ends_with(".right_factor") ? state.data.num_elements() : 0;
  }
  return elements;
}

PlanFromStep changed(const PlanHistory& plans, Site site, int rank) {
  PlanFromStep next{.from_step = 2, .plan = plans.back().plan};
  for (CompressionPlan::Class& row : next.plan.classes) {
    if (row.members.site == site) {
      row.codec->rank = rank;
    }
  }
  return next;
}

// The cool-down's codec of another rank than that of the other phases.
PlanFromStep cooldown_apart(const PlanHistory& plans) {
  PlanFromStep next{.from_step = 2, .plan = plans.back().plan};
  for (CompressionPlan::Class& row : next.plan.classes) {
    if (row.codec && row.members.phase == Phase::cooldown) {
      row.codec->rank = 4;
    }
  }
  return next;
}

}  // namespace

TEST_CASE("a codec that is tightened keeps what its messages owe") {
  for (const char* site : {"pipeline_backward", "data_gradient"}) {
    INFO(site);
    const bool boundary = std::string(site) == "pipeline_backward";
    const MeshRun run = compressed(run_of(1, 2, 2), site, kLazyRankTwo);
    run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
      Channels& channels = model.channels();
      const auto before = residuals_of(channels);
      const std::size_t narrow = elements_of_factors(channels);
      channels.add_plan(
          changed(channels.plans(), boundary ? Site::pipeline_backward : Site::data_gradient, 4));
      channels.begin_step(2);
      const auto after = residuals_of(channels);
      const std::size_t wider = elements_of_factors(channels);
      const bool has_any = !boundary || model.groups().pipeline_rank() == 1;
      const bool same = before == after;
      const bool owes = std::any_of(before.begin(), before.end(), [](const auto& residual) {
        return dot(residual.second, residual.second) > 0.0;
      });
      const std::lock_guard lock(check_mutex());
      CHECK(same);
      CHECK(owes == has_any);
      CHECK(wider == 2 * narrow);
    });
  }
}

TEST_CASE("what sums owe stays when they are made in two shots from a step on, or gathered again") {
  CodecSetting setting{.kind = CodecKind::quantize,
                       .error_feedback = ErrorFeedback::immediate,
                       .always = true,
                       .bits = 4};
  setting.sum = GENERATE(SumWay::gather, SumWay::two_shot);
  const MeshRun run = compressed(run_of(1, 1, 4), "data_gradient", setting);
  run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
    Channels& channels = model.channels();
    const auto before = residuals_of(channels);
    PlanFromStep next{.from_step = 2, .plan = channels.plans().back().plan};
    for (CompressionPlan::Class& row : next.plan.classes) {
      if (row.codec) {
        row.codec->sum = setting.sum == SumWay::gather ? SumWay::two_shot : SumWay::gather;
      }
    }
    channels.add_plan(next);
    channels.begin_step(2);
    const bool same = before == residuals_of(channels);
    const bool owes = std::any_of(before.begin(), before.end(), [](const auto& residual) {
      return dot(residual.second, residual.second) > 0.0;
    });
    const std::lock_guard lock(check_mutex());
    CHECK(same);
    CHECK(owes);
  });
}

// One codec serves both phases; where one of them changes, what is owed stays with the other.
TEST_CASE("phases that part and meet again owe together what they owed") {
  const MeshRun run = compressed(run_of(1, 2, 1), "pipeline_backward", kLazyRankTwo);
  run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& /*micro_batches*/) {
    Channels& channels = model.channels();
    const auto together = residuals_of(channels);
    channels.add_plan(cooldown_apart(channels.plans()));
    channels.begin_step(2);
    const auto parted = residuals_of(channels);
    channels.add_plan(
        {.from_step = 3, .plan = changed(channels.plans(), Site::pipeline_backward, 4).plan});
    channels.begin_step(3);
    const auto met = residuals_of(channels);
    const bool sends = model.groups().pipeline_rank() == 1;
    const std::lock_guard lock(check_mutex());
    CHECK(together.size() == (sends ? 1 : 0));
    CHECK(parted.size() == (sends ? 2 : 0));
    CHECK(met == together);
  });
}

TEST_CASE("with immediate feedback every micro-batch's residual follows its codec") {
  CodecSetting setting = kLazyRankTwo;
  setting.error_feedback = ErrorFeedback::immediate;
  const MeshRun run = compressed(run_of(1, 2, 1), "pipeline_backward", setting);
  run_step(run, [&](MeshModel& model, const std::vector<MicroBatch>& micro_batches) {
    Channels& channels = model.channels();
    const auto together = residuals_of(channels);
    channels.add_plan(cooldown_apart(channels.plans()));
    channels.begin_step(2);
    auto parted = residuals_of(channels);
    channels.add_plan(
        {.from_step = 3, .plan = changed(channels.plans(), Site::pipeline_backward, 4).plan});
    channels.begin_step(3);
    const auto met = residuals_of(channels);
    const std::lock_guard lock(check_mutex());
    CHECK(met == together);
    if (model.groups().pipeline_rank() == 0) {
      CHECK(together.empty());
      return;
    }
    // The last stage's cool-down is its last micro-batch.
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
      const std::string first = fmt::format("residual/pipeline_backward/1/{}", i);
      const std::string second = fmt::format("residual/pipeline_backward/1+2/{}", i);
      const bool last = i + 1 == micro_batches.size();
      const std::vector<float>& owed = together.at(first);
      CHECK(dot(owed, owed) > 0.0);
      CHECK(parted[last ? second : first] == owed);
      CHECK(parted[last ? first : second] == std::vector<float>(owed.size(), 0.0F));
    }
  });
}

}  // namespace slackline::testing
