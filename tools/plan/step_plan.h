#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/flops.h"
#include "parallel/plan/compression_plan.h"
#include "parallel/plan/sent_bytes.h"
#include "parallel/predict/outer_round.h"
#include "parallel/predict/step_cost_model.h"
#include "tools/plan/memory_plan.h"
#include "tools/plan/plan_job.h"

namespace slackline {

// A class of transfers in a plan. Bytes are those of a step, over all
// replicas; seconds are those of one transfer, absent where transfers take place within passes,
// whose seconds have theirs.
struct PlannedClass {
  schedule::TransferClass members{};
  std::size_t raw_bytes = 0;
  std::size_t sent_bytes = 0;
  std::optional<schedule::Seconds> raw{};    // mean, from readiness to arrival
  std::optional<schedule::Seconds> slack{};  // the least of any
  // What its codec takes of one rank for a message, or for a step's sums; absent where not known.
  std::optional<schedule::Seconds> encode{};
  std::optional<schedule::Seconds> decode{};
  std::optional<CodecSetting> codec{};
  std::string reason{};  // why its codec is what it is
};

// The classes from a step on.
struct PlannedClasses {
  std::int64_t from_step = 1;
  schedule::Seconds step{};  // predicted
  std::vector<PlannedClass> classes{};
};

// What one rank holds and sends.
struct PlannedRank {
  MeshPlace place{};
  int node = 0;
  std::size_t memory_bytes = 0;
  AxisBytes sent{};  // an equal share of what the ranks of its pipeline place send
};

// Everything that is known of a run before it starts: a function of config, costs and links.
// Nothing of the model is allocated.
struct StepPlan {
  PlanJob job{};
  std::int64_t parameters = 0;
  std::int64_t trained_parameters = 0;
  std::int64_t tokens_per_step = 0;
  FlopsPerToken flops{};
  std::vector<ChunkSlice> stages{};  // virtual ones, in model order
  schedule::Schedule schedule{};
  std::string costs_from{};  // a sentence for the reader
  std::string links_from{};
  bool has_measured_costs = false;
  schedule::Timeline timeline{};
  StepCosts costs{};  // measured or assumed
  LinkSpeeds links{};
  PlanHistory plans{};
  std::vector<PlannedClasses> compression{};      // of these plans; the last is the run's
  AxisBytes step_bytes{};                         // under it
  AxisBytes step_bytes_across{};                  // of them, between groups of data ranks
  std::optional<OuterRound> round{};              // of workers that train apart
  std::vector<int> slots{};                       // micro-batches in flight, per pipeline rank
  std::vector<PlannedRank> ranks{};               // in world order
  std::vector<std::vector<MemoryItem>> memory{};  // of each pipeline place's first rank

  [[nodiscard]] const std::vector<PlannedClass>& classes() const {
    return compression.back().classes;
  }

  // The shortest period that hides a round behind its steps; absent where it is not known.
  [[nodiscard]] std::optional<std::int64_t> shortest_period() const;
};

struct StepPlanFiles {
  std::string cluster{};  // where empty: network.links, then the cost file's links
  // An empty path means the rehearsal's file, else costs assumed from floating-point operations.
  std::string costs{};
};

// Links that a run's transfers take: those that it emulates, else those that were probed. A run
// that computes emulates links alone, and a rehearsal devices, too.
[[nodiscard]] LinkSpeeds links_of_run(const NetworkConfig& network,
                                      Device device,
                                      const LinkSpeeds& probed);

// Reads the files and plans. Throws ConfigError where one is wrong or does not fit the config.
// Links that were probed stand for those of files. `plans`: what a run compresses, where it may
// differ from what its config says.
[[nodiscard]] StepPlan read_step_plan(const PlanJob& job,
                                      const StepPlanFiles& files,
                                      const LinkSpeeds& probed = {},
                                      const std::optional<PlanHistory>& plans = {});

// Plans from values: without costs they are assumed, by the devices that links name, without links
// transfers take no time.
[[nodiscard]] StepPlan make_step_plan(const PlanJob& job,
                                      const std::optional<StepCosts>& costs,
                                      const LinkSpeeds& links,
                                      const std::optional<PlanHistory>& plans = {});

}  // namespace slackline
