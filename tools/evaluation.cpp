#include "tools/evaluation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "core/stream.h"
#include "model/stage.h"

namespace slackline {

namespace {

std::int64_t count_windows(const TokenFile& tokens,
                           std::int64_t T,
                           std::optional<std::int64_t> max_batches) {
  const auto size = static_cast<std::int64_t>(tokens.num_tokens());
  const std::int64_t windows = (size - 1) / T;  // the first token is never predicted
  if (size == 0 || windows == 0) {
    throw FileError(fmt::format("{}: evaluation needs at least sequence + 1 = {} tokens; got {}",
                                tokens.path(),
                                T + 1,
                                size));
  }
  // Compared by division: a large limit must not overflow.
  const bool limited = max_batches && *max_batches < windows / kEvaluationBatch + 1;
  return limited ? std::min(windows, *max_batches * kEvaluationBatch) : windows;
}

}  // namespace

double Evaluation::perplexity() const {
  return std::exp(loss);
}

Evaluation evaluate_tokens(Parameters& parameters,
                           const ModelConfig& config,
                           const TokenFile& tokens,
                           const EvaluationOptions& options) {
  const std::int64_t T = config.sequence;
  const std::int64_t num_windows = count_windows(tokens, T, options.max_batches);
  const std::int64_t largest = std::min(kEvaluationBatch, num_windows);
  const auto of_batch = [&](std::int64_t B) -> Stage::Options {
    return {.micro_batch = {.B = B, .T = T}, .purpose = Stage::Options::Purpose::evaluate};
  };
  std::size_t workspace = 0;
  // The last batch may be smaller, and may need more scratch: tile grids follow shapes.
  for (const std::int64_t B : {largest, std::max<std::int64_t>(1, num_windows % largest)}) {
    workspace =
        std::max(workspace, Stage::workspace_bytes(config, of_batch(B), options.num_threads));
  }
  Stream stream({.num_threads = options.num_threads, .workspace_bytes = workspace});
  Stage stage(parameters, config, of_batch(largest));

  std::vector<std::int32_t> inputs(static_cast<std::size_t>(largest * T));
  std::vector<std::int32_t> targets(inputs.size());
  double sum = 0.0;
  for (std::int64_t window = 0; window < num_windows; window += largest) {
    const std::int64_t B = std::min(largest, num_windows - window);
    const auto count = static_cast<std::size_t>(B * T);
    const auto first = static_cast<std::uint64_t>(window * T);
    // Windows of a batch follow each other in the file: one read each.
    tokens.read(first, std::span(inputs).first(count));
    tokens.read(first + 1, std::span(targets).first(count));
    sum += stage.evaluate({.stream = stream,
                           .batch = {.tokens = Tensor(inputs.data(), DType::i32, {B, T}),
                                     .targets = Tensor(targets.data(), DType::i32, {B * T})}});
    if (options.progress) {
      options.progress(window + B, num_windows);
    }
  }
  const std::int64_t predicted = num_windows * T;
  const Evaluation result{.loss = sum / static_cast<double>(predicted), .tokens = predicted};
  if (!std::isfinite(result.loss)) {
    throw NonFiniteError(tokens.path() + ": the loss over these tokens is not finite");
  }
  return result;
}

}  // namespace slackline
