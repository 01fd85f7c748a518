#pragma once

#include <cstdint>
#include <optional>

#include "core/comm/communicator.h"
#include "parallel/mesh_model.h"
#include "parallel/step_cost_model.h"
#include "tools/drift_watch.h"
#include "tools/step_recorder.h"
#include "tools/train_config.h"

namespace slackline {

// Policy critical_path in a training run: when its plan is chosen, by which costs, and when it is
// chosen anew. Every rank has one and calls alike; rank 0 chooses.
//
// A run that resumes with a chosen plan keeps it. What a guard has changed, before or while costs
// were measured, bounds every later choice.
class PlanChooser {
 public:
  // `num_threads` of this rank's codecs. Config, model and world must outlive it.
  PlanChooser(const TrainConfig& config, int num_threads, MeshModel& model, Communicator& world);

  // Whether the next costs of steps are for a choice.
  [[nodiscard]] bool is_measuring() const { return state_ == State::measuring; }

  // Adds what the candidates' codecs take here to what steps took. Blocks for some codec calls.
  void measure_codecs(StepRecorder& recorder) const;

  // Chooses by costs and links that are known to rank 0, and has the model obey from
  // kStepsToChange steps after `step` on. Returns the plan on every rank; nothing where it is the
  // one in force already. Blocks.
  [[nodiscard]] std::optional<PlanFromStep> choose(const StepCosts& costs,
                                                   const LinkSpeeds& links,
                                                   std::int64_t step);

  // A step has been reported, the same on every rank. Whether steps have drifted away from what the
  // first ones under the last plan took, be it a choice or a guard's: costs are to be measured
  // anew.
  [[nodiscard]] bool has_drifted(std::int64_t step, double step_seconds);

  // What steps took before they drifted.
  [[nodiscard]] double usual_seconds() const { return watch_.usual_seconds(); }

  void measure_anew() { state_ = State::measuring; }

 private:
  enum class State { fixed, measuring, watching };

  const TrainConfig* config_;
  int num_threads_;
  MeshModel* model_;
  Communicator* world_;
  State state_ = State::fixed;
  std::int64_t watched_from_ = 0;  // the first step of the plan that is watched
  DriftWatch watch_{};
};

}  // namespace slackline
