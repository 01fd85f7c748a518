#include "tools/infer/evaluation.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>

#include "core/tensor/host_tensor.h"
#include "core/tensor/stream.h"
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

Stage::Options stage_options(const ModelConfig& config, std::int64_t B) {
  return {.micro_batch = {.B = B, .T = config.sequence}, .purpose = Stage::Purpose::evaluate};
}

// Enough for each of these batches: tile grids follow shapes, so the smaller, last one may need
// more scratch. A batch of none counts nothing.
std::size_t workspace_bytes(const ModelConfig& config,
                            std::initializer_list<std::int64_t> batches,
                            const Workers& workers) {
  std::size_t bytes = 0;
  for (const std::int64_t B : batches) {
    if (B > 0) {
      bytes = std::max(bytes, Stage::workspace_bytes(config, stage_options(config, B), workers));
    }
  }
  return bytes;
}

// Inputs and targets of up to `count` tokens that follow each other in a file, in the memory of a
// device.
class TokenWindows {
 public:
  TokenWindows(std::int64_t count, Device device)
      : memory_(make_buffer("evaluated tokens", DType::i32, {2, count}, backing_of(device))),
        all_(memory_.view(DType::i32, {2, count})),
        host_(all_, HostTensor::Contents::undefined) {}

  // REQUIRES: no op still reads the ones before.
  [[nodiscard]] MicroBatch read(const TokenFile& tokens,
                                std::uint64_t first,
                                std::int64_t B,
                                std::int64_t T) {
    const auto count = static_cast<std::size_t>(B * T);
    tokens.read(first, host_.tensor().rows(0, 1).span<std::int32_t>().first(count));
    tokens.read(first + 1, host_.tensor().rows(1, 2).span<std::int32_t>().first(count));
    host_.write_back();
    const Device device = all_.device();
    return {.tokens = Tensor(all_.rows(0, 1).raw(), DType::i32, {B, T}, device),
            .targets = Tensor(all_.rows(1, 2).raw(), DType::i32, {B * T}, device)};
  }

 private:
  Buffer memory_;
  Tensor all_;
  HostTensor host_;
};

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
  const std::int64_t largest = std::min(options.windows_per_pass, num_windows);
  Stream stream(options.workers,
                workspace_bytes(config, {largest, num_windows % largest}, options.workers));
  Stage stage(parameters, config, stage_options(config, largest));

  TokenWindows windows(largest * T, options.workers.device);
  double sum = 0.0;
  NoTensorSum one_rank;
  for (std::int64_t window = 0; window < num_windows; window += largest) {
    const std::int64_t B = std::min(largest, num_windows - window);
    const auto first = static_cast<std::uint64_t>(window * T);
    sum += stage.evaluate({.stream = stream,
                           .sum = &one_rank,
                           .batch = windows.read(tokens, first, B, T),
                           .filter = options.filter});
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
