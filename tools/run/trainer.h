#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/error.h"
#include "data/dataset.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/outer_loop.h"
#include "tools/config/train_config.h"
#include "tools/record/metrics.h"
#include "tools/record/run_directory.h"
#include "tools/run/run_checkpoints.h"
#include "tools/run/step_reporter.h"
#include "tools/run/training_state.h"

namespace slackline {

// One rank of a training run: composes data, model, parallel, optimizer, checkpoints and logs. Owns
// all of them; the groups must outlive it. Every rank makes one and calls the same.
class Trainer {
 public:
  struct Options {
    bool resume = false;  // continue from the run directory's newest checkpoint
    int num_threads = 1;
    std::string resolved_config;         // JSON text, saved with the run
    LinkSpeeds links{};                  // probed, or absent
    bool codecs_take_compute = false;    // no core is free for them while ops compute
    std::optional<double> peak_flops{};  // of all devices of the run; 0: unknown; absent: none
  };

  // Opens data and checkpoint and allocates. Whatever is wrong with config or data, or with what a
  // checkpoint says of itself, is thrown here, before the run directory gets a file; nothing
  // travels between ranks yet, so that one rank may throw while others do not.
  // REQUIRES: the groups are of the config's mesh.
  Trainer(const TrainConfig& config, const Options& options, Groups& groups);

  // Trains to the last step and saves it. Returns `done`, or `stopped` after a signal to any rank
  // and a save.
  [[nodiscard]] ExitCode run();

 private:
  // Has state, and the run's directory with what stands there before step 1.
  void begin();
  // Initializes or loads weights and state, which travel between ranks.
  void make_state();
  // Saves the state behind a step.
  void save(std::int64_t step);
  // Takes the time since then out of what steps of a round are reckoned to take.
  void leave_out_since(double began);
  // One optimizer step (docs/architecture.md follows it line by line). Returns whether some rank
  // was told to stop.
  [[nodiscard]] bool train_step(std::int64_t step);
  // Ends an outer round with the step, whose update has been made, and notes it in the record.
  // Returns whether some worker was told to stop.
  [[nodiscard]] bool end_round(StepRecord& record, const StepFacts& facts);
  // This data rank's micro-batches of a global batch whose first sequence has index `first`.
  std::vector<MicroBatch> load(const Dataset& data, std::uint64_t first, std::int64_t step);
  // Mean loss over run.eval_batches global batches; nothing when a signal arrives meanwhile.
  std::optional<double> evaluate();
  // False when a signal cut it short: the run then stops, and owes it to whoever resumes.
  [[nodiscard]] bool evaluate_when_due(std::int64_t step);
  [[nodiscard]] bool evaluation_is_due(std::int64_t step) const;
  // Whether the step to resume from was to be evaluated and was not; the same on all ranks.
  [[nodiscard]] bool owed_evaluation();
  // Takes the run's directory, which must be as it was when the start looked at it. All ranks.
  void require_own_checkpoint() const;
  void require_same_step();
  void claim_directory();
  [[nodiscard]] ExitCode stopped_after(std::int64_t step);
  [[noreturn]] void stop_on_non_finite(const StepRecord& record);
  // Returns what every worker has done by the end of a step that is to be saved. Ends the run where
  // one of them trains no further. All ranks.
  [[nodiscard]] std::vector<WorkerProgress> progress_of_workers(std::int64_t step);
  // Where workers train apart, one that cannot go on waits for the others at the end of the round,
  // or before a checkpoint.
  [[noreturn]] void stop_workers(const StepRecord& record, const RoundEnd& end);

  [[nodiscard]] bool is_first_rank() const { return world_->rank() == 0; }

  TrainConfig config_;  // start_ decides what the given one leaves open
  Options options_;
  Communicator* world_;
  RunDirectory directory_;
  TrainingStart start_;
  Dataset train_data_;
  std::optional<Dataset> valid_data_;
  MeshModel model_;
  std::optional<OuterLoop> outer_;  // where groups train apart
  StepReporter reporter_;
  RunCheckpoints checkpoints_;
  std::vector<std::int32_t> sample_;   // (T + 1), one sequence as stored
  std::vector<std::int32_t> tokens_;   // (M, B, T) of a step
  std::vector<std::int32_t> targets_;  // (M, B, T)
  std::int64_t skips_ = 0;             // skipped steps in a row up to the last one
  bool was_told_to_stop_ = false;      // this worker, in the round under way
  bool has_failed_ = false;            // likewise: it trains no further
};

}  // namespace slackline
