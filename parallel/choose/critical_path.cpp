#include "parallel/choose/critical_path.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "compress/codec_traits.h"
#include "compress/expected_error.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/choose/plan_search.h"
#include "parallel/plan/class_bytes.h"
#include "parallel/plan/class_costs.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/timeline/retiming.h"
#include "parallel/predict/timeline/slack.h"

namespace slackline {

namespace {

using schedule::Choices;
using schedule::ChosenCodecs;
using schedule::ClassChoices;
using schedule::ClassCost;
using schedule::CostModel;
using schedule::Schedule;
using schedule::Seconds;
using schedule::Site;
using schedule::TransferClass;

constexpr double kMilliseconds = 1e3;
constexpr std::string_view kPolicyMark = "policy critical_path";  // how its reasons begin
// Slack that is worth a word.
constexpr Seconds kHidden{1e-6};

// Settings that lose about as much of any message, and at most this share: they serve before
// anything is measured.
constexpr double kLostBy8Bits = 0.01;
constexpr double kLostBy16Bits = 0.002;

// What codecs may lose.
struct ErrorLimits {
  GuardLimits left{};               // by a guard, to classes that it changed
  std::map<Site, double> bounds{};  // of a guard, as far as errors were measured
};

std::string milliseconds(Seconds seconds) {
  return fmt::format("{:.4g} ms", kMilliseconds * seconds.value);
}

// The candidates of all classes, in the order of the classes.
class Candidates {
 public:
  using OfSites = std::map<Site, std::vector<CodecSetting>>;

  Candidates(OfSites of_sites, const CompressConfig& config, const MeshJob& job)
      : of_sites_(std::move(of_sites)) {
    CompressionPlan plan;
    for (const TransferClass& members : planned_classes(config, job)) {
      plan.classes.push_back({.members = members});
    }
    std::size_t most = 0;
    for (const auto& [site, list] : of_sites_) {
      most = std::max(most, list.size());
    }
    const MeshLists lists(job);
    // One pass over the model's tensors for the i-th candidates of all sites together.
    for (std::size_t i = 0; i < most; ++i) {
      for (CompressionPlan::Class& row : plan.classes) {
        row.codec = setting_of(row.members.site, i);
      }
      bytes_.push_back(class_bytes(lists, plan));
    }
    for (const CompressionPlan::Class& row : plan.classes) {
      classes_.push_back(row.members);
      shapes_.push_back(typical_shape(job, row.members));
    }
    for (std::size_t i = 0; most > 0 && i < classes_.size(); ++i) {
      raw_bytes_ += static_cast<double>(bytes_.front()[i].raw);
    }
  }

  [[nodiscard]] const std::vector<TransferClass>& classes() const { return classes_; }

  [[nodiscard]] const std::vector<std::vector<ClassBytes>>& bytes() const { return bytes_; }

  [[nodiscard]] std::optional<CodecSetting> setting_of(Site site, std::size_t i) const {
    const auto found = of_sites_.find(site);
    return found == of_sites_.end() || i >= found->second.size()
               ? std::nullopt
               : std::make_optional(found->second[i]);
  }

  // Returns the candidates that make the class's bytes less, as limits let them. `why_none` gets
  // the reason why nothing does.
  [[nodiscard]] ClassChoices offered(std::size_t members,
                                     const StepCosts& costs,
                                     const ErrorLimits& limits,
                                     std::string_view& why_none) const {
    ClassChoices offered{.members = classes_[members]};
    why_none = "no candidate that makes it smaller";
    bool guarded = false;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const std::optional<CodecSetting> setting = setting_of(classes_[members].site, i);
      const ClassBytes& row = bytes_[i][members];
      offered.in_passes = row.is_priced;
      if (!setting || row.sent >= row.raw) {
        continue;
      }
      if (!is_within(limits.left, costs.errors, members, *setting)) {
        guarded = true;
        why_none = "the guard has left it no candidate";
      } else if (is_too_coarse(limits.bounds, costs.errors, members, *setting)) {
        why_none =
            guarded ? why_none : "all that make it smaller lose more than the guard lets pass";
      } else {
        const double loss = costs.errors.of(classes_[members], *setting, shapes_[members]);
        offered.choices.push_back(
            {.cost = class_cost(row, codec_seconds_or_assumed(row.compressed, costs)),
             .error = loss * static_cast<double>(row.raw) / raw_bytes_,
             .setting = *setting,
             .loss = loss});
      }
    }
    return offered;
  }

 private:
  [[nodiscard]] bool is_within(const GuardLimits& limits,
                               const CodecErrors& errors,
                               std::size_t members,
                               const CodecSetting& setting) const {
    const auto limit = limits.find(classes_[members]);
    if (limit == limits.end()) {
      return true;
    }
    const auto error = [&](const CodecSetting& of) {
      return errors.of(classes_[members], of, shapes_[members]);
    };
    const std::optional<CodecSetting>& left = limit->second;
    return left && (setting == *left || error(setting) < error(*left));
  }

  // A guard would turn it off as soon as it has looked at it. What low ranks and chosen elements
  // lose depends too much on the message to be left out unmeasured.
  [[nodiscard]] bool is_too_coarse(const std::map<Site, double>& bounds,
                                   const CodecErrors& errors,
                                   std::size_t members,
                                   const CodecSetting& setting) const {
    const auto bound = bounds.find(classes_[members].site);
    const double expected =
        traits_of(setting.kind).rounds ? expected_error(setting, shapes_[members]) : 0.0;
    return bound != bounds.end() && errors.measured(classes_[members], setting).value_or(expected) >
                                        error_bound(classes_[members], setting, bound->second);
  }

  std::map<Site, std::vector<CodecSetting>> of_sites_;
  std::vector<TransferClass> classes_{};
  std::vector<MatrixShape> shapes_{};             // of a typical message of each class
  std::vector<std::vector<ClassBytes>> bytes_{};  // of each candidate, of each class
  double raw_bytes_ = 0.0;
};

// What each class does to the step, for the reasons of a plan.
class Explainer {
 public:
  Explainer(const Schedule& schedule,
            const schedule::ModelOf& model_of,
            const std::vector<ClassChoices>& offered,
            const std::vector<std::string_view>& why_none,
            const ChosenCodecs& chosen)
      : schedule_(schedule),
        model_of_(model_of),
        offered_(offered),
        why_none_(why_none),
        chosen_(chosen) {
    std::vector<TransferClass> classes;
    const CostModel plain = model_of(chosen.choices);
    CostModel planned = plain;
    for (std::size_t i = 0; i < offered.size(); ++i) {
      classes.push_back(offered[i].members);
      costs_.push_back(cost_of(i, chosen_.choices[i]));
      planned.compressed[classes.back()] = costs_.back();
    }
    plain_costs_.assign(classes.size(), ClassCost{});
    from_plain_.emplace(schedule, plain, classes);
    from_planned_.emplace(schedule, planned, classes);
    for (const schedule::ClassSlack& row :
         schedule::class_slacks(schedule::make_timeline(schedule, planned))) {
      slacks_[row.members] = row.slack;
    }
  }

  [[nodiscard]] std::string reason(std::size_t members) const {
    if (offered_[members].in_passes) {
      return "in passes, " +
             (chosen_.choices[members] ? compressed_in_passes(members) : left_plain(members));
    }
    return chosen_.choices[members] ? compressed(members) : left_plain(members);
  }

 private:
  [[nodiscard]] ClassCost cost_of(std::size_t members, std::optional<std::size_t> choice) const {
    return choice ? offered_[members].choices[*choice].cost : ClassCost{};
  }

  [[nodiscard]] static Seconds with(const schedule::Retiming& steps,
                                    std::vector<ClassCost> costs,
                                    std::size_t members,
                                    const ClassCost& cost) {
    costs[members] = cost;
    return steps.step(costs);
  }

  // Returns how much of a step whose timeline is plain waits for this class alone.
  [[nodiscard]] Seconds exposed(std::size_t members) const {
    const ClassCost nothing{.share = 0.0, .rounds = schedule::Rounds{}};
    return from_plain_->step(plain_costs_) - with(*from_plain_, plain_costs_, members, nothing);
  }

  // Returns the step as chosen but for this class, in the timeline or in passes.
  [[nodiscard]] Seconds step_with(std::size_t members, std::optional<std::size_t> choice) const {
    Choices choices = chosen_.choices;
    choices[members] = choice;
    const CostModel costs = schedule::with_codecs(model_of_(choices), offered_, choices);
    return schedule::make_timeline(schedule_, costs).step;
  }

  // REQUIRES: the class has a codec.
  [[nodiscard]] std::string codec_of(std::size_t members) const {
    return short_text(offered_[members].choices[*chosen_.choices[members]].setting);
  }

  [[nodiscard]] std::string compressed(std::size_t members) const {
    const Seconds won = with(*from_planned_, costs_, members, {}) - from_planned_->step(costs_);
    const Seconds waited = exposed(members);
    const std::string what = waited > kHidden ? fmt::format("{} exposed", milliseconds(waited))
                                              : "critical beside other classes";
    return fmt::format("{}, {} wins {}", what, codec_of(members), milliseconds(won));
  }

  [[nodiscard]] std::string compressed_in_passes(std::size_t members) const {
    const Seconds won = step_with(members, std::nullopt) - chosen_.step;
    return won > kHidden ? fmt::format("{} wins {}", codec_of(members), milliseconds(won))
                         : codec_of(members) + " wins beside other classes";
  }

  // Returns what the step as chosen would gain by another choice.
  [[nodiscard]] Seconds gain_of(std::size_t members, std::size_t choice) const {
    return offered_[members].in_passes
               ? chosen_.step - step_with(members, choice)
               : from_planned_->step(costs_) -
                     with(*from_planned_, costs_, members, cost_of(members, choice));
  }

  [[nodiscard]] std::string left_plain(std::size_t members) const {
    const ClassChoices& offered = offered_[members];
    const auto slack = slacks_.find(offered.members);
    if (!offered.in_passes && slack != slacks_.end() && slack->second > kHidden) {
      return fmt::format("hidden by {}, left plain", milliseconds(slack->second));
    }
    if (offered.choices.empty()) {
      return fmt::format("{}, left plain", why_none_[members]);
    }
    std::size_t best = 0;
    std::vector<Seconds> won;
    won.reserve(offered.choices.size());
    for (std::size_t i = 0; i < offered.choices.size(); ++i) {
      won.push_back(gain_of(members, i));
      best = won[best] < won[i] ? i : best;
    }
    const std::string codec = short_text(offered.choices[best].setting);
    return won[best] > kHidden
               ? fmt::format("{} would win {}, too little for its error, left plain",
                             codec,
                             milliseconds(won[best]))
               : fmt::format("{} would win nothing, left plain", codec);
  }

  const Schedule& schedule_;
  const schedule::ModelOf& model_of_;
  const std::vector<ClassChoices>& offered_;
  const std::vector<std::string_view>& why_none_;
  const ChosenCodecs& chosen_;
  std::vector<ClassCost> costs_{};  // as chosen
  std::vector<ClassCost> plain_costs_{};
  std::optional<schedule::Retiming> from_plain_{};
  std::optional<schedule::Retiming> from_planned_{};
  std::map<TransferClass, Seconds> slacks_{};  // under the plan
};

// The codecs that transfers of passes get by these choices.
CompressionPlan plan_of_passes(const std::vector<ClassChoices>& offered, const Choices& choices) {
  CompressionPlan plan;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    if (offered[i].in_passes && choices[i]) {
      plan.classes.push_back(
          {.members = offered[i].members, .codec = offered[i].choices[*choices[i]].setting});
    }
  }
  return plan;
}

CriticalPathPlan choose(const Candidates& candidates,
                        const MeshJob& job,
                        const StepCosts& costs,
                        const LinkSpeeds& links,
                        const ErrorLimits& limits) {
  const MeshLists lists(job);
  std::vector<std::string_view> why_none(candidates.classes().size());
  std::vector<ClassChoices> offered;
  offered.reserve(candidates.classes().size());
  for (std::size_t i = 0; i < candidates.classes().size(); ++i) {
    offered.push_back(candidates.offered(i, costs, limits, why_none[i]));
  }
  const schedule::ModelOf model_of = [&](const Choices& choices) {
    return cost_model(lists, costs, links, plan_of_passes(offered, choices));
  };
  schedule::SearchLimits search_limits;
  if (std::ranges::any_of(offered,
                          [](const auto& row) { return row.in_passes && !row.choices.empty(); })) {
    const CostModel no_transfers = cost_model(lists, costs, std::nullopt);
    search_limits.shortest = schedule::make_timeline(lists.schedule(), no_transfers).step;
  }
  const ChosenCodecs chosen =
      schedule::search_codecs(lists.schedule(), model_of, offered, search_limits);
  const Explainer explainer(lists.schedule(), model_of, offered, why_none, chosen);
  CriticalPathPlan result{.plain_step = chosen.plain, .step = chosen.step};
  for (std::size_t i = 0; i < offered.size(); ++i) {
    CompressionPlan::Class& row = result.plan.classes.emplace_back();
    row.members = candidates.classes()[i];
    if (chosen.choices[i]) {
      row.codec = offered[i].choices[*chosen.choices[i]].setting;
    }
    row.reason = fmt::format("{}: {}", kPolicyMark, explainer.reason(i));
  }
  return result;
}

// Keeps the settings that are known to lose at most this share of any message.
Candidates::OfSites losing_at_most(double share, Candidates::OfSites of_sites) {
  constexpr MatrixShape kAny{.rows = 1, .columns = 1};
  for (auto& entry : of_sites) {
    std::erase_if(entry.second, [&](const CodecSetting& setting) {
      return !traits_of(setting.kind).rounds || expected_error(setting, kAny) > share;
    });
  }
  return of_sites;
}

LinkSpeeds faster(LinkSpeeds links, double factor) {
  if (links) {
    for (Cluster::Link* link : links->links()) {
      link->bytes_per_second *= factor;
      link->latency_seconds /= factor;
    }
  }
  return links;
}

// Codecs whose error is known beforehand, by what is known of compute and links before step 1. A
// class that would wait over links twice as fast has the smaller ones, which 8-bit integers are;
// where that hangs on how well links are known, a cast.
CompressionPlan early_plan(const CompressConfig& config,
                           const MeshJob& job,
                           const LinkSpeeds& links) {
  constexpr double kLinksMayBe = 2.0;
  const StepCosts costs = assumed_costs(job.model, assumed_speeds(links, job.precision));
  const ErrorLimits limits{.bounds = max_errors_of(config)};
  const Candidates::OfSites known = losing_at_most(kLostBy8Bits, candidates_of(config, job));
  const Candidates::OfSites casts = losing_at_most(kLostBy16Bits, known);
  const CompressionPlan certain =
      choose({known, config, job}, job, costs, faster(links, kLinksMayBe), limits).plan;
  CompressionPlan plan = choose({casts, config, job}, job, costs, links, limits).plan;
  for (std::size_t i = 0; i < plan.classes.size(); ++i) {
    CompressionPlan::Class& row = plan.classes[i];
    if (certain.classes[i].codec) {
      row = certain.classes[i];
    }
    row.reason.insert(kPolicyMark.size(), ", before steps are measured");
  }
  return plan;
}

}  // namespace

std::vector<CandidateMessage> candidate_messages(const CompressConfig& config, const MeshJob& job) {
  std::vector<CandidateMessage> messages;
  const Candidates candidates(candidates_of(config, job), config, job);
  for (const std::vector<ClassBytes>& of_candidate : candidates.bytes()) {
    for (const ClassBytes& row : of_candidate) {
      for (const CodedMessage& message : row.compressed) {
        const CandidateMessage candidate{
            .codec = message.codec, .shape = message.shape, .is_added = message.is_added};
        if (std::find(messages.begin(), messages.end(), candidate) == messages.end()) {
          messages.push_back(candidate);
        }
      }
    }
  }
  return messages;
}

CriticalPathPlan choose_critical_path(const CompressConfig& config,
                                      const MeshJob& job,
                                      const StepCosts& costs,
                                      const LinkSpeeds& links,
                                      const GuardLimits& limits) {
  return choose({candidates_of(config, job), config, job},
                job,
                costs,
                links,
                {.left = limits, .bounds = max_errors_of(config)});
}

PlanHistory plans_before_measuring(const CompressConfig& config,
                                   const MeshJob& job,
                                   const LinkSpeeds& links) {
  PlanHistory plans;
  if (config.warmup_steps > 0) {
    PlanFromStep& plain = plans.emplace_back();
    for (const TransferClass& members : planned_classes(config, job)) {
      plain.plan.classes.push_back(
          {.members = members, .reason = fmt::format("{}: warm-up steps", kPolicyMark)});
    }
  }
  plans.push_back(
      {.from_step = std::int64_t{config.warmup_steps} + 1, .plan = early_plan(config, job, links)});
  return plans;
}

bool begins_critical_path(const PlanHistory& plans) {
  return !plans.empty() &&
         std::ranges::all_of(plans.front().plan.classes, [](const CompressionPlan::Class& row) {
           return row.reason.starts_with(kPolicyMark);
         });
}

std::map<Site, double> max_errors_of(const CompressConfig& config) {
  std::map<Site, double> bounds;
  for (const Site site :
       {Site::pipeline_forward, Site::pipeline_backward, Site::data_gradient, Site::embedding}) {
    const auto bound = config.guard.max_error.find(schedule::site_name(site));
    if (bound != config.guard.max_error.end()) {
      bounds[site] = bound->second;
    }
  }
  return bounds;
}

}  // namespace slackline
