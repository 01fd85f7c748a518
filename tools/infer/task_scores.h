#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/workers.h"
#include "data/formats/tasks_file.h"
#include "model/boundary_filter.h"
#include "tools/infer/model_loader.h"

namespace slackline {

// A share of tasks, and its standard error, sqrt(p (1 - p) / (n - 1)).
struct Share {
  std::int64_t hits = 0;
  std::int64_t tasks = 0;

  [[nodiscard]] double value() const;
  [[nodiscard]] std::optional<double> standard_error() const;  // none of a single task
};

// Counts what a model makes of tasks, the two kinds apart.
struct TaskScores {
  // Choices: how often the right one is the most likely, by the log probability of its tokens
  // together, and by their mean. Of choices that are equally likely the first counts.
  Share by_total{};
  Share by_mean{};
  // Targets: how often greedy decoding gives all of their tokens, and their log probabilities.
  Share greedy{};
  double target_log_probability = 0.0;  // of all together
  std::int64_t target_tokens = 0;
};

struct ScoreOptions {
  Workers workers{};
  BoundaryFilter* filter = nullptr;  // what changes activations between layers; not owned
  std::function<void(std::int64_t done, std::int64_t total)> progress{};  // tasks; may be empty
};

// Scores tasks of the file `path`, which starts messages. Computes in fp32. Of a context that is
// too long for the model with what follows it the last tokens count. Throws FileError for text that
// the model's tokens cannot say, and for what follows and is longer than the model's context, and
// NonFiniteError where logits are not finite.
[[nodiscard]] TaskScores score_tasks(const InferenceModel& model,
                                     const std::vector<Task>& tasks,
                                     const std::string& path,
                                     const ScoreOptions& options);

}  // namespace slackline
