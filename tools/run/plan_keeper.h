#pragma once

#include <cstdint>
#include <optional>

#include "parallel/predict/step_cost_model.h"
#include "parallel/step/mesh_model.h"
#include "tools/config/train_config.h"
#include "tools/plan/step_plan.h"
#include "tools/record/run_directory.h"
#include "tools/run/measure/cost_recorder.h"
#include "tools/run/measure/drift_watch.h"
#include "tools/run/measure/step_accounts.h"

namespace slackline {

// Returns the steps that a process measures first under policy critical_path, which trains
// first_step first and has these plans; nothing if it only watches. REQUIRES: there is a plan.
[[nodiscard]] std::optional<MeasuredSteps> first_measured_steps(std::int64_t first_step,
                                                                std::int64_t warm_up,
                                                                const PlanHistory& plans);

// Returns the steps that a process measures where nothing is chosen by their costs: of one plan, as
// far as the plans are known. Where another one comes into force meanwhile, they are of that if
// there are enough of it until the run's last step.
[[nodiscard]] MeasuredSteps told_steps(std::int64_t first_step,
                                       std::int64_t last_step,
                                       const PlanHistory& plans);

// Changes the compression plan of a run as its steps go, and keeps the files that say what the plan
// is and by which costs. Nothing else changes or writes them once a run has started.
//
//   guard     a sampled step that lost more than the config allows has the model compress less,
//             from kStepsToChange steps later on
//   choice    under policy critical_path the costs of measured steps choose the plan
//   drift     steps that take another time than before have links and costs measured anew
//
// The first choice comes from two steps and at once, so that few steps wait for it; it is refined
// by the four steps under it that follow the next, and made anew when steps drift. A run that
// resumes goes on where that stood. What a guard has changed, before or while costs were measured,
// bounds every later choice.
//
// Every rank has one and calls alike; rank 0 chooses, logs and writes.
class PlanKeeper {
 public:
  struct Options {
    std::int64_t first_step = 1;  // that this process trains
    LinkSpeeds links{};           // probed, or absent
    int num_threads = 1;          // of this rank's codecs
    bool codecs_take_compute = false;
  };

  // Reads the links that the config emulates. Config, model and directory must outlive it.
  PlanKeeper(const TrainConfig& config,
             const Options& options,
             MeshModel& model,
             RunDirectory& directory);

  // The steps whose costs are needed next, or were last.
  [[nodiscard]] const MeasuredSteps& measured() const;

  // Whether links are to be probed anew before the next step.
  [[nodiscard]] bool probe_is_due() const { return probe_is_due_; }

  // Blocks. REQUIRES: between steps, with no traffic of them under way.
  void probe_anew();

  // Called before the passes of a step.
  void begin_step(std::int64_t step);

  // Has guard and drift watch judge a step. REQUIRES: the directory is started; steps come in
  // order.
  void judge(const AccountedStep& step);

  // Takes the costs of all measured() steps: writes them, and the plan with the step time that they
  // predict, and under critical_path chooses by them. Blocks. REQUIRES: the directory is started.
  void take_costs(CostRecorder& recorder);

 private:
  [[nodiscard]] bool is_first_rank() const { return model_->groups().is_first_rank(); }

  void guard(const StepRecord& record);
  // Has links and costs measured anew where steps have drifted away from what the first ones under
  // the last plan took, be it a choice or a guard's.
  void watch(const AccountedStep& step);
  // Adds what the candidates' codecs take here to what steps took, and tries them on the messages
  // that the model has kept.
  void measure_codecs(CostRecorder& recorder) const;
  // Completes the costs, on rank 0, writes them with the plan, and says how good its prediction is.
  void tell_costs(StepCosts costs, double measured_seconds);
  // Chooses by the costs, and has the model obey from where the measurement says.
  void choose_plan();
  void tell_choice(const PlanFromStep& chosen);
  void point_to_rounds(double predicted) const;
  // The plan's files, as far as costs are known by now. Returns the seconds that it predicts of the
  // step, under the plan that is in force then.
  [[nodiscard]] double write_plan(std::int64_t step) const;
  // Absent where links are emulated, too.
  [[nodiscard]] LinkSpeeds probed_links() const;

  const TrainConfig* config_;
  Options options_;  // with the links of the run: emulated, as the file said at first, or probed
  MeshModel* model_;
  RunDirectory* directory_;
  bool chooses_;  // the policy is critical_path and there is something to measure
  std::optional<MeasuredSteps> measurement_{};  // to choose by; none while steps are watched
  MeasuredSteps told_{};           // measured although nothing is chosen by their costs
  std::int64_t watched_from_ = 0;  // the first step of the plan that is watched
  DriftWatch watch_{};
  std::optional<StepCosts> costs_{};  // of rank 0, once they are known
  bool probe_is_due_ = false;
};

}  // namespace slackline
