#include "model/attention.h"

#include <algorithm>

#include "core/kernels/attention.h"
#include "core/kernels/dropout.h"
#include "core/profile.h"

namespace slackline {

namespace {

std::string layer_name(int layer) {
  return "h." + std::to_string(layer);
}

}  // namespace

AttentionActivations allocate_attention_activations(Arena& arena,
                                                    const ModelConfig& config,
                                                    BatchShape shape,
                                                    DType dtype) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t C = config.hidden;
  return {.norm = allocate_norm_activations(arena, N, C, dtype),
          .qkv = arena.allocate(dtype, {N, 3 * C}),
          .context = arena.allocate(dtype, {N, C}),
          .log_sum_exp = arena.allocate(DType::f32, {shape.B, config.heads, shape.T})};
}

AttentionLayer::AttentionLayer(Parameters& parameters, const ModelConfig& config, int layer)
    : config_(config),
      site_(layer_name(layer)),
      norm_(parameters, site_ + ".ln_1"),
      qkv_(parameters, site_ + ".attn.c_attn"),
      projection_(parameters, site_ + ".attn.c_proj") {}

void AttentionLayer::forward(const Pass& pass,
                             const Tensor& x,
                             const AttentionActivations& kept,
                             const Tensor& out) const {
  const StreamView stream = pass.stream;
  norm_.forward(stream, x, kept.norm);
  qkv_.forward(stream, kept.norm.y, kept.qkv);
  {
    const ProfileRange range(stream, "attention");
    attention_forward(stream,
                      {.qkv = pass.by_sequence(kept.qkv),
                       .output = pass.by_sequence(kept.context),
                       .log_sum_exp = kept.log_sum_exp,
                       .num_heads = config_.heads,
                       .dropout = pass.dropout_key(site_ + ".attn")});
  }
  ArenaScope scratch(stream.workspace());
  const Tensor projected = scratch.allocate(x.dtype(), x.shape());
  projection_.forward(stream, kept.context, projected);
  const ProfileRange range(stream, "residual");
  dropout_add(stream,
              {.x = pass.by_sequence(projected),
               .residual = pass.by_sequence(x),
               .out = pass.by_sequence(out),
               .key = pass.dropout_key(site_ + ".attn.resid")});
}

void AttentionLayer::backward(const Pass& pass,
                              const Tensor& x,
                              const AttentionActivations& kept,
                              const Tensor& d_residual) const {
  const StreamView stream = pass.stream;
  ArenaScope scratch(stream.workspace());
  const Tensor d_branch = scratch.allocate(x.dtype(), x.shape());
  const Tensor d_context = scratch.allocate(x.dtype(), x.shape());
  const Tensor d_qkv = scratch.allocate(x.dtype(), kept.qkv.shape());

  Tensor d_projected = d_residual;
  if (pass.dropout > 0.0F) {
    const ProfileRange range(stream, "residual");
    d_projected = d_branch;
    dropout_add(stream,
                {.x = pass.by_sequence(d_residual),
                 .out = pass.by_sequence(d_projected),
                 .key = pass.dropout_key(site_ + ".attn.resid")});
  }
  projection_.backward_input(stream, d_projected, d_context);
  projection_.backward_weight(stream, kept.context, d_projected, pass.accumulate);
  {
    const ProfileRange range(stream, "attention");
    attention_backward(stream,
                       {.qkv = pass.by_sequence(kept.qkv),
                        .output = pass.by_sequence(kept.context),
                        .log_sum_exp = kept.log_sum_exp,
                        .d_output = pass.by_sequence(d_context),
                        .d_qkv = pass.by_sequence(d_qkv),
                        .num_heads = config_.heads,
                        .dropout = pass.dropout_key(site_ + ".attn")});
  }
  const Tensor d_norm = d_branch;  // the branch's gradient is not needed any more
  qkv_.backward_input(stream, d_qkv, d_norm);
  qkv_.backward_weight(stream, kept.norm.y, d_qkv, pass.accumulate);
  norm_.backward(stream, x, kept.norm, d_norm, d_residual, Accumulate::yes);
}

std::size_t AttentionLayer::workspace_bytes(const ModelConfig& config,
                                            BatchShape shape,
                                            DType dtype,
                                            int num_threads) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t C = config.hidden;
  const std::size_t held =
      2 * Arena::aligned_bytes(dtype, {N, C}) + Arena::aligned_bytes(dtype, {N, 3 * C});
  return held +
         std::max({Linear::workspace_bytes(N, {C, 3 * C}, dtype, num_threads),
                   Linear::workspace_bytes(N, {C, C}, dtype, num_threads),
                   attention_workspace_bytes(
                       {.B = shape.B, .T = shape.T, .H = config.heads, .D = config.head_dim()},
                       num_threads),
                   layer_norm_workspace_bytes(N, C)});
}

}  // namespace slackline
