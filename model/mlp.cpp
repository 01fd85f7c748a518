#include "model/mlp.h"

#include <algorithm>

#include "core/kernels/dropout.h"
#include "core/profile.h"

namespace slackline {

MlpActivations allocate_mlp_activations(Arena& arena,
                                        const ModelConfig& config,
                                        BatchShape shape,
                                        DType dtype) {
  const std::int64_t N = shape.num_tokens();
  return {.norm = allocate_norm_activations(arena, N, config.hidden, dtype),
          .hidden = arena.allocate(dtype, {N, config.ffn}),
          .gelu = arena.allocate(dtype, {N, config.ffn})};
}

MlpLayer::MlpLayer(Parameters& parameters, const ModelConfig& config, int layer)
    : config_(config),
      site_("h." + std::to_string(layer)),
      norm_(parameters, site_ + ".ln_2"),
      expansion_(parameters, site_ + ".mlp.c_fc"),
      projection_(parameters, site_ + ".mlp.c_proj") {}

void MlpLayer::expand(const Pass& pass, const Tensor& x, const MlpActivations& kept) const {
  norm_.forward(pass.stream, x, kept.norm);
  expansion_.forward(pass.stream, kept.norm.y, kept.hidden, kept.gelu);
}

void MlpLayer::forward(const Pass& pass,
                       const Tensor& x,
                       const MlpActivations& kept,
                       const Tensor& out) const {
  const StreamView stream = pass.stream;
  expand(pass, x, kept);
  ArenaScope scratch(stream.workspace());
  const Tensor projected = scratch.allocate(x.dtype(), x.shape());
  projection_.forward(stream, kept.gelu, projected);
  const ProfileRange range(stream, "residual");
  dropout_add(stream,
              {.x = pass.by_sequence(projected),
               .residual = pass.by_sequence(x),
               .out = pass.by_sequence(out),
               .key = pass.dropout_key(site_ + ".mlp.resid")});
}

void MlpLayer::backward(const Pass& pass,
                        const Tensor& x,
                        const MlpActivations& kept,
                        const Tensor& d_residual) const {
  const StreamView stream = pass.stream;
  ArenaScope scratch(stream.workspace());
  const Tensor d_branch = scratch.allocate(x.dtype(), x.shape());
  const Tensor d_hidden = scratch.allocate(x.dtype(), kept.hidden.shape());

  Tensor d_projected = d_residual;
  if (pass.dropout > 0.0F) {
    const ProfileRange range(stream, "residual");
    d_projected = d_branch;
    dropout_add(stream,
                {.x = pass.by_sequence(d_residual),
                 .out = pass.by_sequence(d_projected),
                 .key = pass.dropout_key(site_ + ".mlp.resid")});
  }
  projection_.backward_input(stream, d_projected, d_hidden, kept.hidden);
  projection_.backward_weight(stream, kept.gelu, d_projected, pass.accumulate);
  const Tensor d_norm = d_branch;  // the branch's gradient is not needed any more
  expansion_.backward_input(stream, d_hidden, d_norm);
  expansion_.backward_weight(stream, kept.norm.y, d_hidden, pass.accumulate);
  norm_.backward(stream, x, kept.norm, d_norm, d_residual, Accumulate::yes);
}

std::size_t MlpLayer::workspace_bytes(const ModelConfig& config,
                                      BatchShape shape,
                                      DType dtype,
                                      int num_threads) {
  const std::int64_t N = shape.num_tokens();
  const std::size_t held = Arena::aligned_bytes(dtype, {N, config.hidden}) +
                           Arena::aligned_bytes(dtype, {N, config.ffn});
  return held +
         std::max({Linear::workspace_bytes(N, {config.hidden, config.ffn}, dtype, num_threads),
                   Linear::workspace_bytes(N, {config.ffn, config.hidden}, dtype, num_threads),
                   layer_norm_workspace_bytes(N, config.hidden)});
}

}  // namespace slackline
