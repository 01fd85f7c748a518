#include "tools/plan/strategy_ranking.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/joined_text.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/assumed_costs.h"
#include "parallel/predict/timeline/timeline.h"
#include "tools/plan/compression_plans.h"
#include "tools/plan/cost_file.h"
#include "tools/plan/decided_groups.h"
#include "tools/plan/memory_plan.h"

namespace slackline {

namespace {

// Groups of one rank, or one group, make letters mean the same.
bool differs(const ParallelConfig& parallel) {
  return !parallel.data_strategy.has_groups() ||
         (parallel.num_groups() > 1 && parallel.data_ranks_of_group() > 1);
}

// The job with groups of data ranks where it has none: the nodes', which change no byte.
MeshJob with_any_groups(const PlanJob& planned, const LinkSpeeds& links) {
  MeshJob job = planned.mesh;
  if (job.parallel.group == 0 && links) {
    job.parallel = with_groups_of_nodes(
        job.parallel, CollectivesWish::hierarchical, fewest_ranks_of_node(*links, planned));
  }
  return job;
}

RankedStrategy ranked(const PlanJob& job, const StepCosts& costs, const LinkSpeeds& links) {
  const MeshLists lists(job.mesh);
  const schedule::CostModel model = cost_model(lists, costs, links);
  RankedStrategy row{.parallel = job.mesh.parallel,
                     .micro_batch = job.mesh.micro_batch.B,
                     .step = schedule::make_timeline(lists.schedule(), model).step};
  const StepTraffic::Axes bytes = step_traffic(MeshLists(with_any_groups(job, links)), {}).all;
  row.bytes_across = bytes.across[kDataAxis] + bytes.across[kEmbeddingAxis];
  row.bytes_inside = bytes.sent[kDataAxis] + bytes.sent[kEmbeddingAxis] - row.bytes_across;
  row.memory_bytes = largest_memory(job, compression_plans(job, links), links);
  return row;
}

PlanJob with_micro_batch(PlanJob job, std::int64_t sequences) {
  const std::int64_t share = job.mesh.global_batch() / job.mesh.parallel.data;
  job.mesh.micro_batch.B = sequences;
  job.mesh.num_micro_batches = static_cast<int>(share / sequences);
  return job;
}

// The job with each micro-batch that it may have.
std::vector<PlanJob> with_micro_batches(const PlanJob& job) {
  std::vector<PlanJob> jobs;
  if (job.chooses_micro_batch) {
    for (const std::int64_t sequences :
         micro_batch_choices(job.mesh.parallel, job.mesh.model, job.mesh.global_batch())) {
      jobs.push_back(with_micro_batch(job, sequences));
    }
  }
  return jobs.empty() ? std::vector<PlanJob>{job} : jobs;
}

// What comes first in a ranking is smaller.
auto order_of(const RankedStrategy& row) {
  const double first = row.fits ? row.step.value : static_cast<double>(row.memory_bytes);
  return std::tuple(!row.fits, first, row.bytes_across, row.memory_bytes);
}

}  // namespace

bool fits_run(const PlanJob& job, const DataStrategy& strategy) {
  const CompressConfig& compress = job.compress;
  const bool compresses = compress.policy != CompressionPolicy::none;
  const auto codes = [&](const std::string& site) {
    const bool is_listed = compress.policy == CompressionPolicy::list &&
                           std::ranges::any_of(compress.classes, [&](const ListedClasses& row) {
                             return row.site == site;
                           });
    return compresses &&
           (compress.sites.contains(site) || compress.candidates.contains(site) || is_listed);
  };
  return (!compresses || !strategy.shares_updates() || !needs_moments(compress)) &&
         (!codes("embedding") || strategy.codes_table(job.mesh.parallel.pipeline)) &&
         (!codes("parameter_gather") || strategy.parameters != Extent::none) &&
         (!job.cuda_graphs || !strategy.shares_passes());
}

ConfigError no_strategy_fits() {
  return ConfigError(
      "parallel.data_strategy: no strategy has the transfers that compress and run.cuda_graphs "
      "name");
}

StrategyRanking rank_strategies(const PlanJob& job,
                                const StepCosts& costs,
                                const LinkSpeeds& links,
                                std::size_t measured_limit) {
  StrategyRanking ranking{.memory_limit = device_memory_limit(links)};
  if (ranking.memory_limit == 0) {
    ranking.memory_limit = measured_limit;
  }
  std::string obstacle = no_strategy_fits().what();
  for (const DataStrategy& strategy : all_data_strategies()) {
    PlanJob candidate = job;
    candidate.mesh.parallel.data_strategy = strategy;
    candidate.mesh.parallel.ways.reset();
    if (job.outer.is_on()) {  // a worker is one group
      candidate.mesh.parallel.group = candidate.mesh.parallel.data;
    }
    candidate.mesh.parallel = with_decided_groups(candidate, links);
    candidate.mesh.parallel.chooses_strategy = false;
    if (!differs(candidate.mesh.parallel) ||
        !fits_run(job, candidate.mesh.parallel.data_strategy)) {
      continue;
    }
    std::optional<RankedStrategy> best;
    for (const PlanJob& sized : with_micro_batches(candidate)) {
      try {
        RankedStrategy row = ranked(sized, costs, links);
        row.fits = ranking.memory_limit == 0 || row.memory_bytes <= ranking.memory_limit;
        if (!best || order_of(row) < order_of(*best)) {
          best = std::move(row);
        }
      } catch (const ConfigError& error) {
        // A listed or replayed plan may be of other transfers.
        obstacle = std::string("parallel.data_strategy: ") + error.what();
      }
    }
    if (best) {
      ranking.rows.push_back(std::move(*best));
    }
  }
  if (ranking.rows.empty()) {
    throw ConfigError(obstacle);
  }
  std::ranges::stable_sort(ranking.rows, {}, order_of);
  return ranking;
}

std::string ranking_text(const StrategyRanking& ranking, const DataStrategy& own) {
  std::string text = fmt::format(
      "data strategies, the shortest step first{}:\n"
      "strategy  micro        step s   bytes in groups   bytes between    memory bytes\n",
      ranking.memory_limit == 0 ? ""
                                : fmt::format(" (a device has {} bytes)", ranking.memory_limit));
  for (const RankedStrategy& row : ranking.rows) {
    text += fmt::format("{:<9} {:>5} {:>13.6g} {:>17} {:>15} {:>15}{}{}\n",
                        name_of(row.parallel.data_strategy),
                        row.micro_batch,
                        row.step.value,
                        row.bytes_inside,
                        row.bytes_across,
                        row.memory_bytes,
                        row.fits ? "" : "  does not fit",
                        row.parallel.data_strategy == own ? "  <- the run's" : "");
  }
  return text;
}

std::string ranking_json(const StrategyRanking& ranking, const DataStrategy& own) {
  const std::string rows = joined_of(ranking.rows, ", ", [&](const RankedStrategy& row) {
    return fmt::format(
        R"({{"data_strategy": "{}", "group": {}, "micro": {}, "step_seconds": {}, )"
        R"("bytes_inside": {}, "bytes_across": {}, "memory_bytes": {}, "fits": {}, "is_own": {}}})",
        name_of(row.parallel.data_strategy),
        row.parallel.data_ranks_of_group(),
        row.micro_batch,
        row.step.value,
        row.bytes_inside,
        row.bytes_across,
        row.memory_bytes,
        row.fits,
        row.parallel.data_strategy == own);
  });
  return fmt::format("[{}]", rows);
}

StrategyChoice choose_strategy(const PlanJob& job,
                               const LinkSpeeds& links,
                               const DeviceFacts& device) {
  const AssumedSpeeds speeds = job.mesh.device == Device::rehearsal
                                   ? assumed_speeds(links, job.mesh.precision)
                                   : device.speeds;
  const StepCosts costs = job.rehearsal_costs.empty() ? assumed_costs(job.mesh.model, speeds)
                                                      : read_cost_file(job.rehearsal_costs);
  const StrategyRanking ranking = rank_strategies(job, costs, links, device.memory_bytes);
  const RankedStrategy& first = ranking.rows.front();
  const ParallelConfig& parallel = first.parallel;
  if (!first.fits) {
    throw ConfigError(fmt::format(
        "parallel.data_strategy: must fit a device's {} bytes, and no strategy does; "
        R"(nearest is "{}" with {}; use more ranks or a smaller batch.micro; got "auto")",
        ranking.memory_limit,
        name_of(parallel.data_strategy),
        first.memory_bytes));
  }
  return {.parallel = parallel,
          .micro_batch = first.micro_batch,
          .reason = ranking_text(ranking, parallel.data_strategy)};
}

PlanJob with_strategy(PlanJob job, const StepCosts& costs, const LinkSpeeds& links) {
  if (job.mesh.parallel.chooses_strategy && job.mesh.parallel.data > 1) {
    const StrategyRanking ranking = rank_strategies(job, costs, links);
    job = with_micro_batch(job, ranking.rows.front().micro_batch);
    job.mesh.parallel = ranking.rows.front().parallel;
  }
  ParallelConfig& parallel = job.mesh.parallel;
  parallel.chooses_strategy = false;
  parallel = with_decided_groups(job, links);
  if (links) {
    require_groups(parallel, job.network.collectives);
  }
  return job;
}

}  // namespace slackline
