#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// A data strategy on a job's layout, everything else being the job's, but for a micro-batch that is
// to be chosen: the one with which the strategy is best.
struct RankedStrategy {
  ParallelConfig parallel{};
  std::int64_t micro_batch = 0;  // sequences
  schedule::Seconds step{};      // predicted, transfers plain
  std::size_t bytes_inside = 0;  // that data ranks send to their own group in a step, all together
  std::size_t bytes_across = 0;  // and to others
  std::size_t memory_bytes = 0;  // of the rank that needs most
  bool fits = true;
};

// Whether the config's codecs have the sums and gathers that they are for under a strategy, and its
// CUDA graphs the weights and gradients.
[[nodiscard]] bool fits_run(const PlanJob& job, const DataStrategy& strategy);

// Says that they have none under any strategy.
[[nodiscard]] ConfigError no_strategy_fits();

// Every strategy that differs on the layout. Those that fit come first, by the shorter step, then
// by fewer bytes between groups, then by less memory; the others follow by less memory. Those that
// the job does not fit are left out. Throws ConfigError where none is left.
struct StrategyRanking {
  std::vector<RankedStrategy> rows{};
  std::size_t memory_limit = 0;  // of a device; 0: not known
};

// `measured_limit`: memory of a rank where the links say none; 0: not known.
[[nodiscard]] StrategyRanking rank_strategies(const PlanJob& job,
                                              const StepCosts& costs,
                                              const LinkSpeeds& links,
                                              std::size_t measured_limit = 0);

// A table of them; `own` is marked.
[[nodiscard]] std::string ranking_text(const StrategyRanking& ranking, const DataStrategy& own);

// A list of objects.
[[nodiscard]] std::string ranking_json(const StrategyRanking& ranking, const DataStrategy& own);

// What "auto" takes, and why.
struct StrategyChoice {
  ParallelConfig parallel{};
  std::int64_t micro_batch = 0;  // sequences
  std::string reason{};          // the ranking
};

// What is known of a rank's device before anything has run there.
struct DeviceFacts {
  std::size_t memory_bytes = 0;  // that are left for it; 0: not known
  AssumedSpeeds speeds{};
};

// Chooses by the links and by the job's cost file, or costs at a device's assumed speeds. Throws
// ConfigError where no strategy fits a device.
[[nodiscard]] StrategyChoice choose_strategy(const PlanJob& job,
                                             const LinkSpeeds& links,
                                             const DeviceFacts& device);

// The job with what its parallel section leaves open decided: groups (decided_groups.h), and under
// "auto" the first strategy of the ranking. Throws ConfigError where collectives have no groups on
// the nodes of the links to go through.
[[nodiscard]] PlanJob with_strategy(PlanJob job, const StepCosts& costs, const LinkSpeeds& links);

}  // namespace slackline
