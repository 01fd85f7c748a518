#include "parallel/choose/compression_policy.h"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "compress/codec_traits.h"
#include "core/check.h"
#include "core/error.h"
#include "parallel/predict/bucket_times.h"

namespace slackline {

namespace {

using schedule::Phase;
using schedule::Schedule;
using schedule::Site;
using schedule::TransferClass;

constexpr int kPaperBoundaryRank = 16;  // Optimus-CC's scripts
constexpr int kPaperGradientRank = 128;
const std::string kGatherSite = schedule::site_name(Site::parameter_gather);

// Why passes gather no weights; empty where they do.
std::string lack_of_gathers(const ParallelConfig& parallel) {
  const Extent parameters = parallel.data_strategy.parameters;
  if (parallel.data == 1 || parameters == Extent::none) {
    return fmt::format(
        "parallel.data_strategy {} leaves weights whole on every rank; use zero3, or another one "
        "whose first letter is I or G",
        name_of(parallel.data_strategy));
  }
  return parameters == Extent::group && parallel.data_ranks_of_group() == 1
             ? fmt::format(
                   "parallel.data_strategy {} leaves weights whole in groups of one data rank "
                   "(parallel.group, or the data ranks of a node); use larger groups, or zero3",
                   name_of(parallel.data_strategy))
             : "";
}

// Why the layout has no transfers of a site; empty where it has.
std::string lack_of(const std::string& site, const MeshJob& job) {
  const ParallelConfig& parallel = job.parallel;
  if (site == "pipeline_forward" || site == "pipeline_backward") {
    return parallel.pipeline == 1 ? "parallel.pipeline is 1: no transfers between stages" : "";
  }
  if (site == "data_gradient") {
    return parallel.data == 1 ? "parallel.data is 1: no gradients are exchanged" : "";
  }
  if (site == kGatherSite) {
    return lack_of_gathers(parallel);
  }
  if (!job.model.tie_embeddings) {
    return "model.tie_embeddings is false: the tables' gradients belong to data_gradient";
  }
  if (!is_trained(job.model, "wte.weight")) {
    return "model.trainable leaves the tied table as it is";
  }
  if (parallel.pipeline == 1 && parallel.data == 1) {
    return "one rank holds the tied table: nothing is exchanged";
  }
  return parallel.embedding_sync == EmbeddingSync::separate
             ? "parallel.embedding_sync is separate; use fused"
             : "";
}

void require_fit(const std::string& key,
                 const std::string& site,
                 const CodecSetting& setting,
                 const MeshJob& job) {
  const std::string misfit = misfit_of(site, setting, job);
  if (!misfit.empty()) {
    throw ConfigError(fmt::format("compress.{}: {}", key, misfit));
  }
}

void require_sites(const CompressConfig& config, const MeshJob& job) {
  const auto require = [&](const std::string& site, const std::string& key) {
    std::string lack = lack_of(site, job);
    if (lack.empty() && site == "embedding" && !job.parallel.codes_table()) {
      lack = fmt::format(
          "parallel.data_strategy {} adds up the table's gradients in passes, which no codec sits "
          "on",
          name_of(job.parallel.data_strategy));
    }
    if (!lack.empty()) {
      throw ConfigError(fmt::format(
          "compress.{}: the layout has no {} transfers: {}; remove it", key, site, lack));
    }
  };
  for (const auto& [site, setting] : config.sites) {
    require(site, site);
    require_fit(site, site, setting, job);
  }
  for (const auto& [site, candidates] : config.candidates) {
    require(site, site);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      require_fit(fmt::format("{}.candidates.{}", site, i), site, candidates[i], job);
    }
  }
  if (config.policy == CompressionPolicy::list) {
    for (std::size_t i = 0; i < config.classes.size(); ++i) {
      const auto& [site, stage, phase, codec] = config.classes[i];
      require(site, fmt::format("classes.{}.site", i));
      if (codec) {
        require_fit(fmt::format("classes.{}", i), site, *codec, job);
      }
    }
  }
}

bool names_gathers(const CompressConfig& config) {
  return config.sites.contains(kGatherSite) ||
         std::ranges::any_of(config.classes, [](const ListedClasses& listed) {
           return listed.site == kGatherSite;
         });
}

std::optional<CodecSetting> setting_of(const CompressConfig& config, Site site) {
  const auto found = config.sites.find(schedule::site_name(site));
  return found == config.sites.end() ? std::nullopt : std::make_optional(found->second);
}

bool is_of_stage(const ListedClasses& listed, const TransferClass& members) {
  return listed.site == schedule::site_name(members.site) &&
         (!listed.stage || *listed.stage == members.stage);
}

// Rows of phase step stand for the tail, too, where none names it.
bool matches(const CompressConfig& config,
             const ListedClasses& listed,
             const TransferClass& members) {
  if (!is_of_stage(listed, members)) {
    return false;
  }
  if (!listed.phase || *listed.phase == schedule::phase_name(members.phase)) {
    return true;
  }
  return members.phase == Phase::tail && *listed.phase == schedule::phase_name(Phase::step) &&
         std::none_of(
             config.classes.begin(), config.classes.end(), [&](const ListedClasses& other) {
               return is_of_stage(other, members) &&
                      other.phase == schedule::phase_name(Phase::tail);
             });
}

// A row that names nothing is a slip: a stage or phase that the schedule does not have.
void require_matches(const CompressConfig& config, const std::vector<TransferClass>& classes) {
  for (std::size_t i = 0; i < config.classes.size(); ++i) {
    const ListedClasses& listed = config.classes[i];
    if (std::none_of(classes.begin(), classes.end(), [&](const TransferClass& members) {
          return matches(config, listed, members);
        })) {
      throw ConfigError(fmt::format(
          "compress.classes.{}: the layout has no {} transfers of this stage and phase; "
          "`slackline plan` lists what it has; got stage {}, phase {}",
          i,
          listed.site,
          listed.stage ? std::to_string(*listed.stage) : "any",
          listed.phase.value_or("any")));
    }
  }
}

CompressionPlan::Class listed_class(const CompressConfig& config, const TransferClass& members) {
  for (const ListedClasses& listed : config.classes) {
    if (matches(config, listed, members)) {
      return {.members = members,
              .codec = listed.codec ? listed.codec : setting_of(config, members.site),
              .reason = "policy list: listed"};
    }
  }
  return {.members = members, .reason = "policy list: not listed"};
}

// Optimus-CC's static rules: the epilogue's backward messages of every boundary, and the gradients
// of the first k stages.
CompressionPlan::Class optimus_class(const CompressConfig& config,
                                     const MeshJob& job,
                                     const TransferClass& members) {
  const int p = job.parallel.pipeline;
  const int k = config.stages.value_or((3 * p + 3) / 4);
  CompressionPlan::Class result{.members = members};
  switch (members.site) {
    case Site::pipeline_backward:
      if (config.epilogue_only && members.phase != Phase::cooldown) {
        result.reason = "policy optimus_cc: not in the epilogue";
        return result;
      }
      result.codec = setting_of(config, members.site)
                         .value_or(CodecSetting{.error_feedback = ErrorFeedback::lazy,
                                                .always = true,
                                                .rank = kPaperBoundaryRank});
      result.reason = config.epilogue_only ? "policy optimus_cc: epilogue"
                                           : "policy optimus_cc: every backward transfer";
      return result;
    case Site::data_gradient:
      if (members.stage % p >= k) {
        result.reason = fmt::format("policy optimus_cc: not among the first {} stages", k);
        return result;
      }
      result.codec = setting_of(config, members.site)
                         .value_or(CodecSetting{.error_feedback = ErrorFeedback::immediate,
                                                .always = true,
                                                .rank = kPaperGradientRank});
      result.reason = fmt::format("policy optimus_cc: among the first {} stages", k);
      return result;
    default:
      result.codec = setting_of(config, members.site);
      result.reason =
          result.codec ? "policy optimus_cc: its section is set" : "policy optimus_cc: stays plain";
      return result;
  }
}

CompressionPlan::Class planned_class(const CompressConfig& config,
                                     const MeshJob& job,
                                     const TransferClass& members) {
  switch (config.policy) {
    case CompressionPolicy::none:
      return {.members = members, .reason = "policy none"};
    case CompressionPolicy::all: {
      const std::optional<CodecSetting> setting = setting_of(config, members.site);
      return {.members = members,
              .codec = setting,
              .reason = setting ? "policy all" : "policy all: its section is not set"};
    }
    case CompressionPolicy::list:
      return listed_class(config, members);
    case CompressionPolicy::optimus_cc:
      return optimus_class(config, job, members);
    case CompressionPolicy::critical_path:
      return {.members = members, .reason = "policy critical_path: the run is measured first"};
    case CompressionPolicy::replay:
      break;
  }
  SL_CHECK(false, "this policy's plan is not made here");
  return {};
}

}  // namespace

std::vector<TransferClass> compressible_classes(const MeshJob& job) {
  const std::shared_ptr<const StepSchedules> schedules = make_schedules(job);
  const Schedule& schedule = schedules->training;
  std::set<TransferClass> classes;
  for (const auto& [id, members] : schedule::boundary_classes(schedule)) {
    classes.insert(members);
  }
  if (lack_of("data_gradient", job).empty()) {
    for (int stage = 0; stage < schedule.num_stages(); ++stage) {
      classes.insert({.site = Site::data_gradient, .stage = stage, .phase = Phase::tail});
    }
    const MeshLists lists(job);
    for (int place = 0; place < job.parallel.pipeline; ++place) {
      for (const PlacedBucket& bucket : placed_buckets(lists, place)) {
        if (!bucket.tail) {
          classes.insert(
              {.site = Site::data_gradient, .stage = bucket.stage, .phase = Phase::step});
        }
      }
    }
  }
  if (lack_of("embedding", job).empty()) {
    classes.insert({.site = Site::embedding, .stage = 0, .phase = Phase::tail});
  }
  return {classes.begin(), classes.end()};
}

std::vector<TransferClass> gather_classes(const MeshJob& job) {
  std::vector<TransferClass> classes;
  if (lack_of(kGatherSite, job).empty()) {
    const int num_stages = make_schedules(job)->training.num_stages();
    for (int stage = 0; stage < num_stages; ++stage) {
      classes.push_back({.site = Site::parameter_gather, .stage = stage, .phase = Phase::steady});
    }
  }
  return classes;
}

std::vector<TransferClass> planned_classes(const CompressConfig& config, const MeshJob& job) {
  std::vector<TransferClass> classes = compressible_classes(job);
  if (names_gathers(config)) {
    const std::vector<TransferClass> gathers = gather_classes(job);
    classes.insert(classes.end(), gathers.begin(), gathers.end());  // the last of all sites
  }
  return classes;
}

std::string misfit_of(const std::string& site, const CodecSetting& setting, const MeshJob& job) {
  const bool is_sum = site == "data_gradient" || site == "embedding";
  if (setting.sum != SumWay::gather && !is_sum) {
    return "sum \"two_shot\" is of sums of gradients; leave it out";
  }
  if (!needs_moments(setting)) {
    return "";
  }
  if (!is_sum) {
    return "units \"moments\" are of gradients; use units \"values\"";
  }
  if (job.parallel.data_strategy.shares_updates()) {
    return fmt::format(
        "units \"moments\" need the optimizer's state on every data rank, which "
        "parallel.data_strategy {} shares out; use replicate, or units \"values\"",
        name_of(job.parallel.data_strategy));
  }
  return job.parallel.sums_by_levels()
             ? "units \"moments\" are of whole matrices, and sums between groups are of parts"
             : "";
}

CompressConfig without_lacking_sites(CompressConfig config, const MeshJob& job) {
  const auto lacks = [&](const auto& of_site) { return !lack_of(of_site.first, job).empty(); };
  std::erase_if(config.sites, lacks);
  std::erase_if(config.candidates, lacks);
  return config;
}

PlanHistory make_compression_plans(const CompressConfig& config, const MeshJob& job) {
  if (config.policy != CompressionPolicy::none) {
    require_sites(config, job);
  }
  const std::vector<TransferClass> classes = planned_classes(config, job);
  if (config.policy == CompressionPolicy::list) {
    require_matches(config, classes);
  }
  CompressionPlan plan;
  for (const TransferClass& members : classes) {
    plan.classes.push_back(planned_class(config, job, members));
  }
  return after_warmup({{.plan = std::move(plan)}}, config.warmup_steps);
}

PlanHistory after_warmup(PlanHistory plans, int warmup_steps) {
  const std::int64_t first = std::int64_t{warmup_steps} + 1;
  if (std::ranges::none_of(plans, [&](const PlanFromStep& row) {
        return row.from_step < first && row.plan.compresses_anything();
      })) {
    return plans;
  }
  const auto later =
      std::ranges::find_if(plans, [&](const PlanFromStep& row) { return row.from_step > first; });
  plans.erase(plans.begin(), later - 1);
  CompressionPlan plain = plans.front().plan;
  for (CompressionPlan::Class& row : plain.classes) {
    row.codec.reset();
    row.reason = "warm-up steps";
  }
  plans.front().from_step = first;
  plans.insert(plans.begin(), {.from_step = 1, .plan = std::move(plain)});
  return plans;
}

}  // namespace slackline
