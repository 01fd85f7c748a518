#pragma once

#include <cstdint>
#include <optional>

#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"
#include "tools/config/train_config.h"
#include "tools/record/metrics.h"
#include "tools/record/run_directory.h"
#include "tools/run/measure/cost_recorder.h"
#include "tools/run/measure/step_accounts.h"
#include "tools/run/measure/trace_recorder.h"
#include "tools/run/plan_keeper.h"

namespace slackline {

// What a line of metrics.jsonl has of the end of an outer round.
[[nodiscard]] RoundRecord round_record(const RoundEnd& end);

// Reports the steps of a run. Each goes one way: its accounts are completed, it becomes a line for
// a person and one of metrics.jsonl, then it is judged by what keeps the compression plan, traced,
// and measured for the costs that the next plan is made of. Every rank has one and calls alike;
// rank 0 prints and writes. A step is reported up to two steps after it ended, or by flush().
class StepReporter {
 public:
  struct Options {
    PlanKeeper::Options plan{};
    std::optional<double> peak_flops{};  // of all devices of the run; 0: unknown; absent: none
  };

  // Config, model, groups and directory must outlive it.
  StepReporter(const TrainConfig& config,
               const Options& options,
               MeshModel& model,
               Groups& groups,
               RunDirectory& directory);

  void begin_step(std::int64_t step);

  // The step is done but for its seconds and axes: what passed since begin_step(), agreed by all
  // ranks. `rounds` are those of the outer round that ends with it. REQUIRES: the directory is
  // started.
  void end_step(const StepRecord& record, const RoundTravels& rounds);

  // Reports all steps that have ended. Blocks.
  void flush();

 private:
  void report(const AccountedStep& step);
  // Prints a line for every run.log_every-th step and the last one, on a terminal also for those
  // between, each in place of the one before.
  void print(const StepRecord& record);

  const TrainConfig* config_;
  const Groups* groups_;
  RunDirectory* directory_;
  StepAccounts accounts_;
  PlanKeeper plan_;
  TraceRecorder trace_;
  CostRecorder costs_;
  std::optional<double> peak_flops_;
  double recent_seconds_ = 0.0;  // of a step, as moving mean, for the time left
};

}  // namespace slackline
