#include "model/decoder.h"

#include <algorithm>
#include <string>

#include "core/kernels/attention/attention.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/embedding/embedding.h"

namespace slackline {

namespace {

std::size_t cache_bytes(const ModelConfig& config) {
  const std::size_t rows =
      checked_multiply(static_cast<std::size_t>(config.layers), 2 * std::size_t(config.sequence));
  return checked_multiply(rows, static_cast<std::size_t>(config.hidden) * sizeof(float));
}

// Scratch of one layer that reads N tokens.
std::size_t layer_workspace_bytes(const ModelConfig& config,
                                  std::int64_t N,
                                  const Workers& workers) {
  const std::int64_t C = config.hidden;
  std::size_t bytes = attention_workspace_bytes(
      {.B = 1, .T = N, .H = config.heads, .D = config.head_dim()}, workers);
  for (const Shape& in_out :
       {Shape{C, 3 * C}, Shape{C, C}, Shape{C, config.ffn}, Shape{config.ffn, C}}) {
    bytes = std::max(bytes, Linear::workspace_bytes(N, in_out, DType::f32, DType::f32, workers));
  }
  return bytes;
}

}  // namespace

Decoder::Layer::Layer(Parameters& parameters,
                      const std::string& name,
                      const Tensor& cached_keys,
                      const Tensor& cached_values)
    : attention_norm(parameters, name + ".ln_1"),
      qkv(parameters, name + ".attn.c_attn"),
      attention_projection(parameters, name + ".attn.c_proj"),
      mlp_norm(parameters, name + ".ln_2"),
      expansion(parameters, name + ".mlp.c_fc"),
      mlp_projection(parameters, name + ".mlp.c_proj"),
      keys(cached_keys),
      values(cached_values) {}

Decoder::Activations Decoder::allocate(Arena& arena, const ModelConfig& config, std::int64_t N) {
  const std::int64_t C = config.hidden;
  return {.tokens = arena.allocate(DType::i32, {1, N}),
          .residual = arena.allocate(DType::f32, {N, C}),
          .norm = allocate_norm_activations(arena, N, C, DType::f32),
          .qkv = arena.allocate(DType::f32, {N, 3 * C}),
          .context = arena.allocate(DType::f32, {N, C}),
          .log_sum_exp = arena.allocate(DType::f32, {1, config.heads, N}),
          .projected = arena.allocate(DType::f32, {N, C}),
          .hidden = arena.allocate(DType::f32, {N, config.ffn}),
          .gelu = arena.allocate(DType::f32, {N, config.ffn}),
          .logits = arena.allocate(DType::f32, {1, config.vocab})};
}

Decoder::Decoder(Parameters& parameters, const ModelConfig& config, BoundaryFilter* filter)
    : config_(config),
      filter_(filter),
      token_table_(&parameters.at("wte.weight")),
      position_table_(&parameters.at("wpe.weight")),
      final_norm_(parameters, "ln_f"),
      head_(parameters, config),
      cache_("cached keys and values", cache_bytes(config), backing_of(parameters.device())),
      arena_(
          "decoder activations",
          [&] {
            Arena measured = Arena::measuring();
            static_cast<void>(allocate(measured, config, config.sequence));
            return measured.high_water();
          }(),
          backing_of(parameters.device())),
      logits_(static_cast<std::size_t>(config.vocab)) {
  SL_CHECK(token_table_->compute().dtype() == DType::f32, "generation computes in fp32");
  const Shape rows{config.sequence, config.hidden};
  const std::size_t bytes = rows.num_elements() * sizeof(float);
  for (int i = 0; i < config.layers; ++i) {
    const std::string name = "h." + std::to_string(i);
    const std::size_t offset = 2 * static_cast<std::size_t>(i) * bytes;
    layers_.emplace_back(parameters,
                         name,
                         cache_.view(DType::f32, rows, offset),
                         cache_.view(DType::f32, rows, offset + bytes));
  }
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
  arena_.release(0);
  const Activations kept = allocate(arena_, config_, N);
  cast(stream, Tensor(context_.data() + first, DType::i32, {1, N}), kept.tokens);
  embedding_forward(stream,
                    {.tokens = kept.tokens,
                     .token_table = token_table_->weight,
                     .position_table = position_table_->weight,
                     .y = kept.residual.reshaped({1, N, config_.hidden}),
                     .first_position = first});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    read_layer(stream, layers_[i], kept);
    if (filter_ != nullptr) {
      filter_->after_layer(stream, static_cast<int>(i), kept.residual);
    }
  }
  final_norm_.forward(stream, kept.residual, kept.norm);
  head_.logits(stream, kept.norm.y.rows(N - 1, N), kept.logits);
  cast(stream, kept.logits, Tensor(logits_.data(), DType::f32, {1, config_.vocab}));
  stream.synchronize();
}

void Decoder::read_layer(StreamView stream, const Layer& layer, const Activations& kept) const {
  layer.attention_norm.forward(stream, kept.residual, kept.norm);
  layer.qkv.forward(stream, kept.norm.y, kept.qkv);
  attend(stream, layer, kept);
  layer.attention_projection.forward(stream, kept.context, kept.projected);
  add(stream, kept.residual, kept.projected, kept.residual);

  layer.mlp_norm.forward(stream, kept.residual, kept.norm);
  layer.expansion.forward(stream, kept.norm.y, kept.hidden, kept.gelu);
  layer.mlp_projection.forward(stream, kept.gelu, kept.projected);
  add(stream, kept.residual, kept.projected, kept.residual);
}

// Puts the new tokens' keys and values into the cache, then attends: to each other when the whole
// context is read, to the cache when one token is.
void Decoder::attend(StreamView stream, const Layer& layer, const Activations& kept) const {
  const std::int64_t C = config_.hidden;
  const std::int64_t N = kept.qkv.dim(0);
  const auto length = static_cast<std::int64_t>(context_.size());
  cache_keys_values(
      stream, {.qkv = kept.qkv, .keys = layer.keys, .values = layer.values, .first = length - N});
  if (N == length) {
    attention_forward(stream,
                      {.qkv = kept.qkv.reshaped({1, N, 3 * C}),
                       .output = kept.context.reshaped({1, N, C}),
                       .log_sum_exp = kept.log_sum_exp,
                       .num_heads = config_.heads});
    return;
  }
  const Shape cache{1, config_.sequence, C};
  attention_decode(stream,
                   {.query = Tensor(kept.qkv.raw(), DType::f32, {1, C}, kept.qkv.device()),
                    .keys = layer.keys.reshaped(cache),
                    .values = layer.values.reshaped(cache),
                    .output = kept.context,
                    .num_heads = config_.heads,
                    .length = length});
}

std::size_t Decoder::workspace_bytes(const ModelConfig& config, const Workers& workers) {
  const MatmulArgs head{.a = Tensor(nullptr, DType::f32, {1, config.hidden}),
                        .b = Tensor(nullptr, DType::f32, {config.vocab, config.hidden}),
                        .c = Tensor(nullptr, DType::f32, {1, config.vocab}),
                        .transpose_b = Transpose::yes};
  std::size_t bytes = matmul_workspace_bytes(head, workers);
  // Tile grids follow shapes, so a shorter prompt may need more scratch than a longer one.
  for (std::int64_t N = 1; N <= config.sequence; ++N) {
    bytes = std::max(bytes, layer_workspace_bytes(config, N, workers));
  }
  return bytes;
}

}  // namespace slackline
