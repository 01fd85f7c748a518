#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "parallel/predict/step_cost_model.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/wait_times.h"
#include "tools/config/train_config.h"
#include "tools/plan/step_plan.h"
#include "tools/record/metrics.h"
#include "tools/record/run_directory.h"
#include "tools/run/plan_chooser.h"
#include "tools/run/step_recorder.h"

namespace slackline {

// Says how a run's steps went: where their time goes, one line each for a person and for
// metrics.jsonl, and after the first steps their costs, their trace, and predicted against measured
// step time. Of sampled steps it says what compression lost, and where the config sets a limit it
// has the model compress less from kStepsToChange steps later on. Under policy critical_path the
// costs of the first steps, or of steps that have drifted, choose what is compressed. Every rank
// has one and calls alike; rank 0 prints and writes.
//
// What ranks tell each other for that travels beside the next steps, so that slow links cost no
// step their latency: a step is reported up to two steps later, or by flush().
class StepReporter {
 public:
  // What is known of the machine besides what steps take.
  struct Machine {
    LinkSpeeds links{};   // probed, or absent
    int num_threads = 1;  // of this rank
    bool codecs_take_compute = false;
    std::optional<double> peak_flops{};  // of all devices; 0: unknown; absent: none
  };

  // Config, model, groups and directory must outlive it.
  StepReporter(const TrainConfig& config,
               const Machine& machine,
               MeshModel& model,
               Groups& groups,
               RunDirectory& directory);

  void begin_step(std::int64_t step);

  // The step is done but for its seconds and axes: what passed since begin_step(), agreed by all
  // ranks. REQUIRES: the directory is started.
  void end_step(const StepRecord& record);

  // Reports all steps that have ended. Blocks.
  void flush();

 private:
  using Clock = std::chrono::steady_clock;

  // A step that has ended and is not reported yet.
  struct Ended {
    StepRecord record{};
    MeshModel::StepTimes times{};
    double own_seconds = 0.0;
    std::vector<Wait> transfers{};
    std::vector<double> sums{};  // on their way round
    Transfer sum{};
    std::optional<StepSamples> samples{};
  };

  [[nodiscard]] bool is_first_rank() const { return world_->rank() == 0; }

  // The steps of a report: sums over ranks set out when all waits of the step are known.
  void add_up(Ended& step);
  void report(Ended& step);
  void print(const StepRecord& record);
  void record_times(const Ended& step);
  void trace_times(const Ended& step);
  // Before the first step of this process.
  void begin_run(std::int64_t step);
  // Whose costs are told.
  [[nodiscard]] const PlanChooser::Measurement& measured() const;
  void tell_costs();
  void choose_plan();
  void watch(const StepRecord& record);
  // Between steps, with nothing under way.
  void probe_anew();
  // Links that transfers take: emulated, probed, or not known.
  [[nodiscard]] LinkSpeeds links() const;
  // Of a sampled step, from the end of its sums over ranks.
  [[nodiscard]] std::vector<ClassQuality> qualities_of(const Ended& step) const;
  void guard(const StepRecord& record);
  // What a sampled step's codecs lost.
  void note_errors(const StepRecord& record);
  // From the costs that are known by now.
  [[nodiscard]] StepPlan current_plan() const;
  // Bytes that compression kept off an axis of kReportedAxes in a step.
  void note_saved_bytes(const PlanFromStep& row);
  [[nodiscard]] double saved_bytes(std::int64_t step, std::size_t axis) const;

  const TrainConfig* config_;
  Machine machine_;
  LinkSpeeds emulated_{};                                    // as the file said when the run began
  std::map<std::int64_t, std::vector<double>> saved_bytes_;  // per axis, from these steps on
  MeshModel* model_;
  Communicator* world_;
  RunDirectory* directory_;
  WaitTimes wait_times_;
  StepRecorder recorder_;
  PlanChooser chooser_;
  std::deque<Ended> ended_;           // two at most, the first with sums on their way
  std::optional<StepCosts> costs_{};  // once they are known; of rank 0
  std::int64_t num_begun_ = 0;        // steps of this process
  PlanChooser::Measurement told_{};   // steps whose costs are told where nothing is chosen
  std::int64_t first_traced_ = 0;
  bool probe_due_ = false;            // before the next step
  Clock::time_point start_{};         // of the current step
  double recent_step_seconds_ = 0.0;  // moving mean, for the time left
  double recorded_seconds_ = 0.0;     // of the steps whose times were recorded
};

}  // namespace slackline
