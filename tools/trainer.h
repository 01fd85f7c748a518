#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "core/stream.h"
#include "data/dataset.h"
#include "model/stage.h"
#include "optim/adamw_optimizer.h"
#include "tools/metrics.h"
#include "tools/run_directory.h"
#include "tools/train_config.h"
#include "tools/training_state.h"

namespace slackline {

// One training run: composes data, model, optimizer, checkpoints and logs. Owns all of them.
class Trainer {
 public:
  struct Options {
    bool resume = false;  // continue from the run directory's newest checkpoint
    int num_threads = 1;
    std::string resolved_config;  // JSON text, saved with the run
  };

  // Opens data and checkpoint, allocates and loads or initializes. Whatever is wrong with config,
  // data or checkpoint is thrown here, before the run directory gets a file.
  Trainer(const TrainConfig& config, const Options& options);

  // Trains to the last step and saves it. Returns `done`, or `stopped` after a signal and a save.
  [[nodiscard]] ExitCode run();

 private:
  // One optimizer step (docs/architecture.md follows it line by line).
  StepRecord train_step(std::int64_t step);
  // Sum of the losses of the global batch's tokens; leaves the gradients of their mean.
  double accumulate_gradients(std::int64_t step);
  // Reads one micro-batch, whose first sequence has global index `first_sample`.
  Pass load(const Dataset& data, std::uint64_t first_sample);
  // Mean loss over run.eval_batches global batches; nothing when a signal arrives meanwhile.
  std::optional<double> evaluate();
  void evaluate_when_due(std::int64_t step);
  void save(std::int64_t step);
  void log(const StepRecord& record);
  [[noreturn]] void stop_on_non_finite(const StepRecord& record);

  TrainConfig config_;
  Options options_;
  TrainingStart start_;
  Dataset train_data_;
  std::optional<Dataset> valid_data_;
  Stream stream_;
  NoTensorSum sum_;
  Parameters parameters_;
  Stage stage_;
  AdamwOptimizer optimizer_;
  RunDirectory directory_;
  CheckpointWriter saver_;
  std::vector<std::int32_t> sample_;   // (T + 1), one sequence as stored
  std::vector<std::int32_t> tokens_;   // (B, T)
  std::vector<std::int32_t> targets_;  // (B, T)
  double data_seconds_ = 0.0;          // spent in load() during the current step
  double recent_step_seconds_ = 0.0;   // moving mean, for the time left
};

}  // namespace slackline
