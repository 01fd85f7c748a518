#include "model/attention.h"

#include <algorithm>

#include "core/kernels/attention/attention.h"
#include "core/tensor/profile.h"
#include "model/generate/key_value_cache.h"
#include "model/residual.h"

namespace slackline {

namespace {

std::string layer_name(int layer) {
  return "h." + std::to_string(layer);
}

}  // namespace

AttentionActivations allocate_attention_activations(Arena& arena,
                                                    const ModelConfig& config,
                                                    const LayerShape& shape) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t width = shape.width(config);
  return {.norm = allocate_norm_activations(arena, shape.num_rows(), config.hidden, shape.dtype),
          .qkv = arena.allocate(shape.dtype, {N, 3 * width}),
          .context = arena.allocate(shape.dtype, {N, width}),
          .log_sum_exp =
              arena.allocate(DType::f32, {shape.batch.B, shape.heads(config), shape.batch.T})};
}

AttentionGradients allocate_attention_gradients(Arena& arena,
                                                const ModelConfig& config,
                                                const LayerShape& shape) {
  const std::int64_t N = shape.num_tokens();
  return {.d_projected = arena.allocate(shape.dtype, {N, config.hidden}),
          .d_qkv = arena.allocate(shape.dtype, {N, 3 * shape.width(config)})};
}

AttentionLayer::AttentionLayer(Parameters& parameters, const ModelConfig& config, int layer)
    : layer_(layer),
      num_heads_(config.heads / parameters.slice().tensor_size),
      first_head_(std::int64_t{num_heads_} * parameters.slice().tensor_rank),
      site_(layer_name(layer)),
      norm_(parameters, site_ + ".ln_1"),
      qkv_(parameters, site_ + ".attn.c_attn"),
      projection_(parameters, site_ + ".attn.c_proj") {}

void AttentionLayer::attend(const Pass& pass, const AttentionActivations& kept) const {
  const ProfileRange range(pass.stream, "attention");
  const AttentionForward args{.qkv = pass.by_sequence(kept.qkv),
                              .output = pass.by_sequence(kept.context),
                              .log_sum_exp = kept.log_sum_exp,
                              .num_heads = num_heads_,
                              .dropout = pass.dropout_key(site_ + ".attn"),
                              .first_head = first_head_};
  if (pass.cache == nullptr) {
    attention_forward(pass.stream, args);
  } else {
    pass.cache->attend(pass.stream, layer_, pass.first_position, args);
  }
}

void AttentionLayer::attend_backward(const Pass& pass,
                                     const AttentionActivations& kept,
                                     const Tensor& d_context,
                                     const Tensor& d_qkv) const {
  const ProfileRange range(pass.stream, "attention");
  attention_backward(pass.stream,
                     {.qkv = pass.by_sequence(kept.qkv),
                      .output = pass.by_sequence(kept.context),
                      .log_sum_exp = kept.log_sum_exp,
                      .d_output = pass.by_sequence(d_context),
                      .d_qkv = pass.by_sequence(d_qkv),
                      .num_heads = num_heads_,
                      .dropout = pass.dropout_key(site_ + ".attn"),
                      .first_head = first_head_});
}

void AttentionLayer::forward(const Pass& pass,
                             const Tensor& x,
                             const AttentionActivations& kept,
                             const Tensor& out,
                             const FollowingNorm& next) const {
  const StreamView stream = pass.stream;
  {
    ArenaScope scratch(stream.workspace());
    const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
    pass.sum->gather(kept.norm.y, y).wait();
    qkv_.forward(stream, y, kept.qkv);
  }
  attend(pass, kept);
  ArenaScope scratch(stream.workspace());
  const Tensor projected =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});
  projection_.forward(stream, kept.context, projected);
  pass.sum->sum(projected).wait();
  add_to_residual(pass, site_ + ".attn.resid", projected, x, out, next);
}

void AttentionLayer::backward(const Pass& pass,
                              const Tensor& x,
                              const AttentionActivations& kept,
                              const AttentionGradients& later,
                              const Tensor& d_residual) const {
  const StreamView stream = pass.stream;
  const bool weights_now = later.d_qkv.empty();
  ArenaScope scratch(stream.workspace());
  const Tensor d_projected =
      branch_gradient(pass, site_ + ".attn.resid", d_residual, later.d_projected, scratch);
  const Tensor d_norm =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});
  // Used up before d_norm is made, and no larger.
  const Tensor d_context(d_norm.raw(), x.dtype(), kept.context.shape(), d_norm.device());
  const Tensor d_qkv = weights_now ? scratch.allocate(x.dtype(), kept.qkv.shape()) : later.d_qkv;

  projection_.backward_input(stream, d_projected, d_context);
  if (weights_now) {
    projection_.backward_weight(stream, kept.context, d_projected, pass.accumulate);
  }
  attend_backward(pass, kept, d_context, d_qkv);
  qkv_.backward_input(stream, d_qkv, d_norm);
  Transfer sum = pass.sum->sum(d_norm);
  if (weights_now) {
    const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
    pass.sum->gather(kept.norm.y, y).wait();
    qkv_.backward_weight(stream, y, d_qkv, pass.accumulate);
  }
  sum.wait();
  norm_.backward(stream, x, kept.norm, pass.sum->own_rows(d_norm), d_residual, Accumulate::yes);
}

void AttentionLayer::backward_weight(const Pass& pass,
                                     const AttentionActivations& kept,
                                     const AttentionGradients& later) const {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
  Transfer gathered = pass.sum->gather(kept.norm.y, y);
  projection_.backward_weight(pass.stream, kept.context, later.d_projected, pass.accumulate);
  gathered.wait();
  qkv_.backward_weight(pass.stream, y, later.d_qkv, pass.accumulate);
}

std::size_t AttentionLayer::workspace_bytes(const ModelConfig& config,
                                            const LayerShape& shape,
                                            const Workers& workers) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t C = config.hidden;
  const std::int64_t width = shape.width(config);
  const DType dtype = shape.dtype;
  const std::size_t held = Arena::aligned_bytes(dtype, {N, C}) +
                           Arena::aligned_bytes(shape.partial(), {N, C}) +
                           Arena::aligned_bytes(dtype, {N, 3 * width}) + shape.whole_bytes(C);
  return held +
         std::max({Linear::workspace_bytes(N, {C, 3 * width}, dtype, shape.partial(), workers),
                   Linear::workspace_bytes(N, {width, C}, dtype, shape.partial(), workers),
                   attention_workspace_bytes({.B = shape.batch.B,
                                              .T = shape.batch.T,
                                              .H = shape.heads(config),
                                              .D = config.head_dim(),
                                              .dtype = dtype},
                                             workers),
                   layer_norm_workspace_bytes(shape.num_rows(), C, workers)});
}

}  // namespace slackline
