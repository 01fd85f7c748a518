#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"
#include "tools/config/train_config.h"
#include "tools/plan/step_plan.h"
#include "tools/record/run_directory.h"
#include "tools/run/step_reporter.h"

namespace slackline {

// One rank of a run on the rehearsal device: the steps of a training run with their schedule,
// transfers and messages, in which every op takes the time of a cost file and computes nothing. No
// data is read, nothing is evaluated or saved. Owns what it runs; the groups must outlive it. Every
// rank makes one and calls the same.
class Rehearsal {
 public:
  // `links` were probed, or are absent. Reads the costs and allocates; memory is touched as far as
  // messages go. Throws what is wrong with them, or where the run directory is taken, before
  // anything travels. REQUIRES: the groups are of the config's mesh, with its scale.
  Rehearsal(const TrainConfig& config,
            std::string resolved_config,
            const LinkSpeeds& links,
            Groups& groups);

  // Returns `done`, or `stopped` after a signal to any rank.
  [[nodiscard]] ExitCode run();

 private:
  [[nodiscard]] std::vector<MicroBatch> micro_batches(std::int64_t step);
  // Runs a step; returns whether all ranks know that one was told to stop.
  [[nodiscard]] bool run_step(std::int64_t step);

  TrainConfig config_;
  std::string resolved_config_;
  Communicator* everyone_;
  StepPlan plan_;
  std::shared_ptr<const StepCosts> costs_;
  MeshModel model_;
  std::optional<OuterLoop> outer_{};  // where groups train apart
  bool was_told_to_stop_ = false;     // since the last end of a round
  RunDirectory directory_;
  StepReporter reporter_;
  std::vector<std::int32_t> tokens_;  // (B, T) of zeros: every micro-batch's inputs and targets
};

}  // namespace slackline
