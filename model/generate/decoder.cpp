#include "model/generate/decoder.h"

#include <algorithm>

#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/matmul/matmul.h"
#include "model/block_half.h"

namespace slackline {

namespace {

Stage::Options stage_options(const ModelConfig& config) {
  return {.micro_batch = {.B = 1, .T = config.sequence}, .purpose = Stage::Purpose::evaluate};
}

}  // namespace

Decoder::Decoder(Parameters& parameters, const ModelConfig& config, BoundaryFilter* filter)
    : config_(config),
      filter_(filter),
      stage_(parameters, config, stage_options(config)),
      cache_(config, parameters.device()),
      tokens_(
          make_buffer("tokens", DType::i32, {1, config.sequence}, backing_of(parameters.device()))),
      device_logits_(
          make_buffer("logits", DType::f32, {1, config.vocab}, backing_of(parameters.device()))),
      logits_(static_cast<std::size_t>(config.vocab)) {
  SL_CHECK(parameters.at("wte.weight").compute().dtype() == DType::f32,
           "generation computes in fp32");
}

void Decoder::start(StreamView stream, std::span<const std::int32_t> prompt) {
  SL_CHECK(!prompt.empty(), "a prompt needs a token");
  const std::size_t count = std::min(prompt.size(), static_cast<std::size_t>(config_.sequence));
  const std::span<const std::int32_t> last = prompt.last(count);
  context_.assign(last.begin(), last.end());
  read(stream, 0);
}

void Decoder::append(StreamView stream, std::int32_t token) {
  SL_CHECK(!context_.empty(), "start comes before append");
  const auto T = static_cast<std::size_t>(config_.sequence);
  context_.push_back(token);
  if (context_.size() <= T) {
    read(stream, static_cast<std::int64_t>(context_.size()) - 1);
    return;
  }
  const std::size_t kept = std::max<std::size_t>(1, T / 2);
  context_.erase(context_.begin(), context_.end() - static_cast<std::ptrdiff_t>(kept));
  read(stream, 0);
}

void Decoder::read(StreamView stream, std::int64_t first) {
  const std::int64_t N = static_cast<std::int64_t>(context_.size()) - first;
  const Tensor tokens = tokens_.view(DType::i32, {1, N});
  cast(stream, Tensor(context_.data() + first, DType::i32, {1, N}), tokens);
  stage_.forward({.stream = stream,
                  .sum = &sum_,
                  .batch = {.tokens = tokens},
                  .filter = filter_,
                  .cache = &cache_,
                  .first_position = first});
  const Tensor logits = device_logits_.view(DType::f32, {1, config_.vocab});
  stage_.head().logits(stream, stage_.final_norm_output().rows(N - 1, N), logits);
  cast(stream, logits, Tensor(logits_.data(), DType::f32, {1, config_.vocab}));
  stream.synchronize();
}

std::size_t Decoder::workspace_bytes(const ModelConfig& config, const Workers& workers) {
  const MatmulArgs head{.a = Tensor(nullptr, DType::f32, {1, config.hidden}),
                        .b = Tensor(nullptr, DType::f32, {config.vocab, config.hidden}),
                        .c = Tensor(nullptr, DType::f32, {1, config.vocab}),
                        .transpose_b = Transpose::yes};
  std::size_t bytes = matmul_workspace_bytes(head, workers);
  // Tile grids follow shapes, so a shorter prompt may need more scratch than a longer one.
  for (std::int64_t N = 1; N <= config.sequence; ++N) {
    bytes =
        std::max(bytes, BlockHalf::workspace_bytes(config, {.batch = {.B = 1, .T = N}}, workers));
  }
  return bytes;
}

}  // namespace slackline
