#pragma once

#include <optional>

#include "tools/config/train_config.h"
#include "tools/record/metrics.h"

namespace slackline {

// Prints how a run's steps go, a line each: every run.log_every-th step and the last one, on a
// terminal also those between, each in place of the one before. One rank has it.
class StepPrinter {
 public:
  // `peak_flops` are those of all devices of the run; 0: unknown; absent: none has any. Config must
  // outlive it.
  StepPrinter(const TrainConfig& config, std::optional<double> peak_flops)
      : config_(&config), peak_flops_(peak_flops) {}

  void print(const StepRecord& record);

 private:
  const TrainConfig* config_;
  std::optional<double> peak_flops_;
  double recent_seconds_ = 0.0;  // of a step, as moving mean, for the time left
};

}  // namespace slackline
