#include "tools/plan/compression_plans.h"

#include <algorithm>
#include <exception>
#include <vector>

#include <fmt/format.h>

#include "compress/codec_traits.h"
#include "core/comm/links/cluster.h"
#include "core/error.h"
#include "core/file_errors.h"
#include "parallel/choose/compression_policy.h"
#include "parallel/choose/critical_path.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/strategy_ranking.h"

namespace slackline {

namespace {

// Whether they have a codec that leaves things out on sums of passes, for which none is offered: it
// was chosen for sums at a step's end, under another data strategy. Others go on.
bool has_unoffered_codecs(const PlanHistory& plans, const PlanJob& job) {
  const auto candidates = candidates_of(job.compress, job.mesh);
  const auto is_unoffered = [&](const CompressionPlan::Class& row) {
    const bool in_passes =
        job.mesh.parallel.sums_in_passes() && schedule::is_once_a_step(row.members.phase);
    if (!row.codec || !in_passes || traits_of(row.codec->kind).rounds) {
      return false;
    }
    const auto offered = candidates.find(row.members.site);
    return offered == candidates.end() ||
           std::ranges::find(offered->second, *row.codec) == offered->second.end();
  };
  return std::ranges::any_of(plans, [&](const PlanFromStep& plan) {
    return std::ranges::any_of(plan.plan.classes, is_unoffered);
  });
}

// Says why plans do not fit a job; empty: they do.
std::string misfit_of(const PlanHistory& plans, const MeshJob& job) {
  for (const PlanFromStep& row : plans) {
    for (const CompressionPlan::Class& one : row.plan.classes) {
      if (!one.codec) {
        continue;
      }
      if (one.members.site == schedule::Site::embedding && !job.parallel.codes_table()) {
        return fmt::format(
            "it compresses the tied table, whose sum parallel.data_strategy {} takes apart; use "
            "replicate or zero1",
            name_of(job.parallel.data_strategy));
      }
      std::string misfit = misfit_of(schedule::site_name(one.members.site), *one.codec, job);
      if (!misfit.empty()) {
        return fmt::format("class {}: {}", schedule::class_text(one.members), misfit);
      }
    }
  }
  return "";
}

PlanHistory replayed(const std::string& path, const MeshJob& job) {
  try {
    PlanHistory plans = read_plan_file(path, compressible_classes(job), gather_classes(job));
    if (const std::string misfit = misfit_of(plans, job); !misfit.empty()) {
      throw ConfigError(misfit);
    }
    return plans;
  } catch (const FileError& problem) {
    throw ConfigError(fmt::format("compress.plan: {}", problem.what()));
  } catch (const ConfigError& problem) {
    throw ConfigError(fmt::format("compress.plan: {}: {}", path, problem.what()));
  }
}

// The layouts that a job may come to have: of strategies and groups that it leaves open. Whether
// there are several groups counts, and not how large they are.
std::vector<ParallelConfig> layouts_of(const PlanJob& job) {
  const ParallelConfig& given = job.mesh.parallel;
  std::vector<ParallelConfig> layouts;
  for (const DataStrategy& strategy : given.chooses_strategy
                                          ? all_data_strategies()
                                          : std::vector<DataStrategy>{given.data_strategy}) {
    if (given.chooses_strategy && !fits_run(job, strategy)) {
      continue;
    }
    ParallelConfig& layout = layouts.emplace_back(given);
    layout.data_strategy = strategy;
    if (given.group == 0 && given.data > 1 && !given.groups_apart && strategy.has_groups()) {
      layouts.push_back(layout);
      layouts.back().group = 1;
    }
  }
  return layouts;
}

}  // namespace

void require_fits(const Cluster& cluster, const std::string& path, const PlanJob& job) {
  const int num_ranks = job.num_workers * job.mesh.parallel.num_ranks();
  if (cluster.num_devices() < num_ranks) {
    throw ConfigError(fmt::format(
        "{}: nodes: must have a device for each of the config's {} ranks (parallel.tensor x "
        "pipeline x data); got {}",
        path,
        num_ranks,
        cluster.num_devices()));
  }
}

StepCosts fitting_costs(const std::string& path, const PlanJob& job) {
  return reading<ConfigError>(path, [&] {
    StepCosts costs = read_cost_file(path);
    static_cast<void>(cost_model(job.mesh, costs, std::nullopt));
    return costs;
  });
}

void require_runnable(const PlanJob& job) {
  if (job.network.emulates()) {
    require_fits(read_emulated_cluster(job.network.links), job.network.links, job);
  }
  if (!job.rehearsal_costs.empty()) {
    // Costs of a micro-batch that is still to be chosen fit what is chosen.
    static_cast<void>(job.chooses_micro_batch ? read_cost_file(job.rehearsal_costs)
                                              : fitting_costs(job.rehearsal_costs, job));
  }
  const std::vector<ParallelConfig> layouts = layouts_of(job);
  if (layouts.empty()) {
    throw no_strategy_fits();
  }
  std::exception_ptr obstacle;
  for (const ParallelConfig& parallel : layouts) {
    PlanJob candidate = job;
    candidate.mesh.parallel = parallel;
    try {
      static_cast<void>(compression_plans(candidate));
      return;
    } catch (const ConfigError&) {
      obstacle = obstacle ? obstacle : std::current_exception();
    }
  }
  std::rethrow_exception(obstacle);
}

StoredPlans resumed_plans(const PlanHistory& of_config,
                          const std::string& document,
                          const PlanJob& job) {
  if (document.empty()) {
    return {.plans = of_config};
  }
  const std::vector<schedule::TransferClass> classes = of_config.front().plan.members();
  StoredPlans stored = read_plan_document(document, classes);
  // The plans of a file that is replayed may tell of critical_path, too, and they are what counts.
  const bool chosen = job.compress.policy == CompressionPolicy::critical_path &&
                      begins_critical_path(stored.plans) &&
                      stored.plans.front().plan.members() == classes &&
                      !has_unoffered_codecs(stored.plans, job);
  const bool guarded = job.compress.policy != CompressionPolicy::replay &&
                       stored.plans.size() > of_config.size() &&
                       std::equal(of_config.begin(), of_config.end(), stored.plans.begin());
  const bool continues = (chosen || guarded) && misfit_of(stored.plans, job.mesh).empty();
  return continues ? stored : StoredPlans{.plans = of_config};
}

PlanHistory compression_plans(const PlanJob& job, const LinkSpeeds& links) {
  if (job.compress.policy == CompressionPolicy::replay) {
    return after_warmup(replayed(job.compress.plan, job.mesh), job.compress.warmup_steps);
  }
  PlanHistory plans = make_compression_plans(job.compress, job.mesh);
  return job.compress.policy == CompressionPolicy::critical_path
             ? plans_before_measuring(job.compress, job.mesh, links)
             : plans;
}

PlanHistory expected_plans(const PlanJob& job, const StepCosts& costs, const LinkSpeeds& links) {
  PlanHistory plans = compression_plans(job, links);
  if (job.compress.policy != CompressionPolicy::critical_path) {
    return plans;
  }
  const bool rehearses = job.mesh.device == Device::rehearsal;
  const std::int64_t from_step = job.compress.warmup_steps + (rehearses ? 1 : kFirstChosenStep);
  std::erase_if(plans, [&](const PlanFromStep& plan) { return plan.from_step >= from_step; });
  plans.push_back({.from_step = from_step,
                   .plan = choose_critical_path(job.compress, job.mesh, costs, links).plan});
  return plans;
}

}  // namespace slackline
