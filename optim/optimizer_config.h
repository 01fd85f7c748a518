#pragma once

#include <cstdint>
#include <optional>

#include "core/json_reader.h"

namespace slackline {

enum class LearningRateSchedule { constant, linear, cosine, wsd };

// The "optimizer" section (configs/README.md describes each key).
struct OptimizerConfig {
  double lr = 3e-4;     // peak; 0 is allowed
  double min_lr = 0.0;  // at the run's last step; at most lr
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps{};  // of wsd; absent: a fifth of the run's steps
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;            // decoupled; matrices only
  bool decay_embeddings = true;         // of token and position tables
  bool decay_embeddings_given = false;  // absent: a run that goes on keeps its checkpoint's
  double clip_norm = 1.0;               // of all gradients together; 0: no clipping
};

// Reads the section and finishes it; throws ConfigError at the first violation.
[[nodiscard]] OptimizerConfig read_optimizer_config(JsonReader section);

}  // namespace slackline
