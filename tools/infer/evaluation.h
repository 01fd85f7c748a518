#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/tensor/workers.h"
#include "data/formats/token_file.h"
#include "model/boundary_filter.h"
#include "model/parameters.h"

namespace slackline {

// Windows that run through the model together. Large enough for products to be efficient.
inline constexpr std::int64_t kEvaluationBatch = 8;

struct Evaluation {
  double loss = 0.0;  // mean over the tokens predicted
  std::int64_t tokens = 0;

  [[nodiscard]] double perplexity() const;
};

struct EvaluationOptions {
  std::optional<std::int64_t> max_batches{};  // batches of kEvaluationBatch windows; all if empty
  Workers workers{};                          // whose device is the parameters'
  BoundaryFilter* filter = nullptr;           // what changes activations between layers; not owned
  std::int64_t windows_per_pass = kEvaluationBatch;  // what runs together; at least 1
  std::function<void(std::int64_t done, std::int64_t total)> progress{};  // windows; may be empty
};

// Mean loss of a model over the tokens of a file in order, in windows of T inputs that do not
// overlap: window k predicts tokens kT+1 .. kT+T (from 0); a last partial window is dropped.
// fp32, no dropout. Losses are summed in double, in token order. Computes where the parameters lie;
// activations and a pass's tokens lie there too.
//
// Throws FileError when the file has no whole window, NonFiniteError when the loss is not finite.
// REQUIRES: parameters compute in f32; every token is below the model's vocabulary.
[[nodiscard]] Evaluation evaluate_tokens(Parameters& parameters,
                                         const ModelConfig& config,
                                         const TokenFile& tokens,
                                         const EvaluationOptions& options);

}  // namespace slackline
