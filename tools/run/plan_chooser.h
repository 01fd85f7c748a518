#pragma once

#include <cstdint>
#include <optional>

#include "core/comm/communicator.h"
#include "parallel/predict/step_cost_model.h"
#include "parallel/step/mesh_model.h"
#include "tools/config/train_config.h"
#include "tools/run/measure/cost_recorder.h"
#include "tools/run/measure/drift_watch.h"
#include "tools/run/measure/measured_steps.h"

namespace slackline {

// Returns the steps that a process measures first, which trains first_step first and has these
// plans; nothing if it only watches. REQUIRES: there is a plan.
[[nodiscard]] std::optional<MeasuredSteps> first_measured_steps(std::int64_t first_step,
                                                                std::int64_t warm_up,
                                                                const PlanHistory& plans);

// Policy critical_path in a training run: when its plan is chosen, by which costs, and when it is
// chosen anew. Every rank has one and calls alike; rank 0 chooses.
//
// The first plan comes from two steps and at once, so that few steps wait for it; it is refined by
// the four steps under it that follow the next, and chosen anew when steps drift. A run that
// resumes goes on where that stood. What a guard has changed, before or while costs were measured,
// bounds every later choice.
class PlanChooser {
 public:
  // `first_step` is the first one that this process trains; `num_threads` are those of this rank's
  // codecs. Config and model must outlive it.
  PlanChooser(const TrainConfig& config,
              std::int64_t first_step,
              int num_threads,
              MeshModel& model);

  // The steps whose costs a plan is chosen by next; nothing while steps are watched.
  [[nodiscard]] const std::optional<MeasuredSteps>& measurement() const { return measurement_; }

  // Adds what the candidates' codecs take here to what steps took, and tries them on the messages
  // that the model has kept. Blocks for some codec calls.
  void measure_codecs(CostRecorder& recorder) const;

  // Chooses by costs and links that are known to rank 0, and has the model obey from where the
  // measurement says. Returns the plan on every rank; nothing where it is the one in force already.
  // Blocks.
  [[nodiscard]] std::optional<PlanFromStep> choose(const StepCosts& costs, const LinkSpeeds& links);

  // A step has been reported, the same on every rank. Whether steps have drifted away from what the
  // first ones under the last plan took, be it a choice or a guard's: costs are to be measured
  // anew.
  [[nodiscard]] bool has_drifted(std::int64_t step, double step_seconds);

  // What steps took before they drifted.
  [[nodiscard]] double usual_seconds() const { return watch_.usual_seconds(); }

  // Measures steps from this one on, which has not begun.
  void measure_anew(std::int64_t first);

 private:
  const TrainConfig* config_;
  int num_threads_;
  MeshModel* model_;
  Communicator* world_;
  bool chooses_ = false;  // the policy is critical_path and there is something to measure
  std::optional<MeasuredSteps> measurement_{};
  std::int64_t watched_from_ = 0;  // the first step of the plan that is watched
  DriftWatch watch_{};
};

}  // namespace slackline
