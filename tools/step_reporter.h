#pragma once

#include <chrono>
#include <cstdint>

#include "parallel/mesh_model.h"
#include "parallel/wait_times.h"
#include "tools/metrics.h"
#include "tools/run_directory.h"
#include "tools/step_recorder.h"
#include "tools/train_config.h"

namespace slackline {

// Says how a run's steps went: where their time goes, one line each for a person and for
// metrics.jsonl, and after the first steps their costs, their trace, and predicted against measured
// step time. Every rank has one and calls alike; rank 0 prints and writes.
class StepReporter {
 public:
  // All of these must outlive it.
  StepReporter(const TrainConfig& config,
               const MeshModel& model,
               Groups& groups,
               RunDirectory& directory);

  void begin_step();

  // Fills seconds and axes of the record with what passed since begin_step(), agreed by all ranks.
  // Blocks. `data_seconds` of this rank's time went into reading data.
  void end_step(StepRecord& record, double data_seconds);

  // `nth` step of this run, from 1. Blocks for a few of them. REQUIRES: the directory is started.
  void report(const StepRecord& record, std::int64_t nth);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool is_first_rank() const { return world_->rank() == 0; }

  void print(const StepRecord& record);
  void record_times(const StepRecord& record, std::int64_t nth);
  void tell_costs(double measured_seconds);

  const TrainConfig* config_;
  const MeshModel* model_;
  Communicator* world_;
  RunDirectory* directory_;
  WaitTimes wait_times_;
  StepRecorder recorder_;
  Clock::time_point start_{};         // of the current step
  double recent_step_seconds_ = 0.0;  // moving mean, for the time left
  double recorded_seconds_ = 0.0;     // of the steps whose times were recorded
};

}  // namespace slackline
