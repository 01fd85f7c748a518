#include "parallel/choose/compression_guard.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_traits.h"
#include "core/check.h"
#include "parallel/plan/class_bytes.h"
#include "parallel/plan/sampled_steps.h"

namespace slackline {

namespace {

using schedule::TransferClass;

constexpr std::string_view kMark = "guard: ";  // how its reasons begin

// What may come after the class' codec.
std::vector<CodecSetting> finer_codecs(const CompressionPlan::Class& row,
                                       const MeshJob& job,
                                       const GuardRule& rule) {
  std::vector<CodecSetting> finer;
  const auto candidates = rule.candidates.find(row.members.site);
  if (candidates == rule.candidates.end()) {
    const auto tightened = traits_of(row.codec->kind).finer;
    if (const auto setting = tightened == nullptr ? std::nullopt : tightened(*row.codec)) {
      finer.push_back(*setting);
    }
    return finer;
  }
  const MatrixShape shape = typical_shape(job, row.members);
  const double error = rule.errors.of(row.members, *row.codec, shape);
  const double of_site = rule.max_error.at(row.members.site);
  std::ranges::copy_if(
      candidates->second, std::back_inserter(finer), [&](const CodecSetting& candidate) {
        return rule.errors.of(row.members, candidate, shape) < error &&
               rule.errors.measured(row.members, candidate).value_or(0.0) <=
                   error_bound(row.members, candidate, of_site);
      });
  return finer;
}

bool differs_in_rank_alone(CodecSetting setting, const CodecSetting& other) {
  setting.rank = other.rank;
  return setting == other;
}

// Takes the one of these that sends least, or no codec where none sends less than plain messages.
void make_finer(CompressionPlan::Class& row, const MeshJob& job, const GuardRule& rule) {
  const CompressionPlan::Class before = row;
  row.codec.reset();
  std::size_t least = 0;
  const std::size_t sent_before = bytes_with(job, before).sent;
  for (const CodecSetting& finer : finer_codecs(before, job, rule)) {
    CompressionPlan::Class candidate = before;
    candidate.codec = finer;
    const ClassBytes bytes = bytes_with(job, candidate);
    // Factors of full rank are no finer for a larger number.
    const bool is_same = bytes.sent == sent_before && differs_in_rank_alone(finer, *before.codec);
    if (!is_same && bytes.sent < bytes.raw && (!row.codec || bytes.sent < least)) {
      row.codec = finer;
      least = bytes.sent;
    }
  }
}

// Whether the class has had the codec of this step for long enough: what the codec before owed
// comes with the first messages.
bool has_settled(const PlanHistory& plans, std::int64_t step, const TransferClass& members) {
  const PlanFromStep& sampled = plan_at(plans, step);
  const std::int64_t before = step - kStepsToSettle;
  if (sampled.from_step <= before || before < 1) {
    return before >= 1;
  }
  const CodecSetting* codec = sampled.plan.setting_of(members);
  const CodecSetting* earlier = plan_at(plans, before).plan.setting_of(members);
  return codec != nullptr && earlier != nullptr && *codec == *earlier;
}

// Lazy feedback has one residual, with which a codec of another phase of the boundary goes on.
bool has_heir(const CompressionPlan& plan,
              const TransferClass& members,
              ErrorFeedback error_feedback) {
  return error_feedback == ErrorFeedback::lazy &&
         std::ranges::any_of(plan.classes, [&](const CompressionPlan::Class& row) {
           return row.members.site == members.site && row.members.stage == members.stage &&
                  row.codec && row.codec->error_feedback == error_feedback;
         });
}

std::string change_text(const CodecSetting& before,
                        const CompressionPlan::Class& row,
                        const CompressionPlan& plan) {
  // A sum has one residual, whatever its feedback; a boundary's are kept in another way by each.
  const bool sums = schedule::is_once_a_step(row.members.phase);
  const bool goes_on = row.codec && (row.codec->error_feedback == before.error_feedback ||
                                     (sums && row.codec->error_feedback != ErrorFeedback::none));
  const bool drops = before.error_feedback != ErrorFeedback::none && !goes_on &&
                     !has_heir(plan, row.members, before.error_feedback);
  const std::string outcome = row.codec ? "becomes " + short_text(*row.codec) : "is turned off";
  return fmt::format("{} {}{}",
                     short_text(before),
                     outcome,
                     drops ? " and what its residuals owe is dropped" : "");
}

}  // namespace

GuardLimits guard_limits(const PlanHistory& plans) {
  GuardLimits limits;
  for (const PlanFromStep& plan : plans) {
    for (const CompressionPlan::Class& row : plan.plan.classes) {
      if (row.reason.starts_with(kMark)) {
        limits[row.members] = row.codec;
      }
    }
  }
  return limits;
}

std::optional<GuardedPlan> guarded_plan(const MeshJob& job,
                                        const PlanHistory& plans,
                                        std::int64_t step,
                                        const std::vector<ClassQuality>& found,
                                        const GuardRule& rule) {
  const CompressionPlan& sampled = plan_at(plans, step).plan;
  // A plan that a run chose after the step that was sampled may come into force at the same one.
  GuardedPlan next{
      .plan = {.from_step = std::max(step + kStepsToChange, plans.back().from_step + 1),
               .plan = plans.back().plan}};
  CompressionPlan& plan = next.plan.plan;
  std::vector<std::pair<CompressionPlan::Class*, const ClassQuality*>> changed;
  for (const ClassQuality& quality : found) {
    const auto row =
        std::ranges::find(plan.classes, quality.members, &CompressionPlan::Class::members);
    SL_CHECK(row != plan.classes.end(), "a sample of no class");
    const CodecSetting* setting = sampled.setting_of(quality.members);
    const bool waits = !row->codec || setting == nullptr || *row->codec != *setting ||
                       !has_settled(plans, step, quality.members);
    const auto bound = rule.max_error.find(quality.members.site);
    if (waits || bound == rule.max_error.end() ||
        lost_share(quality, setting->error_feedback) <=
            error_bound(quality.members, *setting, bound->second)) {
      continue;
    }
    make_finer(*row, job, rule);
    changed.emplace_back(&*row, &quality);
  }
  for (const auto& [row, quality] : changed) {
    const CodecSetting& before = *sampled.setting_of(row->members);
    const bool owes = before.error_feedback != ErrorFeedback::none;
    row->reason =
        fmt::format("{}from step {} {}; {} {:.4g} above {:g} in step {}",
                    kMark,
                    next.plan.from_step,
                    change_text(before, *row, plan),
                    owes ? "owed share" : "relative error",
                    lost_share(*quality, before.error_feedback),
                    error_bound(row->members, before, rule.max_error.at(row->members.site)),
                    step);
    next.changes.push_back(schedule::class_text(row->members) + ": " + row->reason);
  }
  return changed.empty() ? std::nullopt : std::make_optional(std::move(next));
}

}  // namespace slackline
