#include "model/mlp.h"

#include <algorithm>

#include "model/residual.h"

namespace slackline {

MlpActivations allocate_mlp_activations(Arena& arena,
                                        const ModelConfig& config,
                                        const LayerShape& shape) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t f = shape.ffn(config);
  return {.norm = allocate_norm_activations(arena, shape.num_rows(), config.hidden, shape.dtype),
          .hidden = arena.allocate(shape.dtype, {N, f}),
          .gelu = arena.allocate(shape.dtype, {N, f})};
}

MlpGradients allocate_mlp_gradients(Arena& arena,
                                    const ModelConfig& config,
                                    const LayerShape& shape) {
  const std::int64_t N = shape.num_tokens();
  return {.d_projected = arena.allocate(shape.dtype, {N, config.hidden}),
          .d_hidden = arena.allocate(shape.dtype, {N, shape.ffn(config)})};
}

MlpLayer::MlpLayer(Parameters& parameters, const ModelConfig& /*config*/, int layer)
    : layer_(layer),
      site_("h." + std::to_string(layer)),
      norm_(parameters, site_ + ".ln_2"),
      expansion_(parameters, site_ + ".mlp.c_fc"),
      projection_(parameters, site_ + ".mlp.c_proj") {}

void MlpLayer::expand(const Pass& pass, const MlpActivations& kept) const {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
  pass.sum->gather(kept.norm.y, y).wait();
  expansion_.forward(pass.stream, y, kept.hidden, kept.gelu);
}

void MlpLayer::forward(const Pass& pass,
                       const Tensor& x,
                       const MlpActivations& kept,
                       const Tensor& out,
                       const std::optional<FollowingNorm>& next) const {
  expand(pass, kept);
  ArenaScope scratch(pass.stream.workspace());
  const Tensor projected =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});
  projection_.forward(pass.stream, kept.gelu, projected);
  pass.sum->sum(projected).wait();
  add_to_residual(pass, site_ + ".mlp.resid", projected, x, out, next);
}

void MlpLayer::backward(const Pass& pass,
                        const Tensor& x,
                        const MlpActivations& kept,
                        const MlpGradients& later,
                        const Tensor& d_residual) const {
  const StreamView stream = pass.stream;
  const bool weights_now = later.d_hidden.empty();
  ArenaScope scratch(stream.workspace());
  const Tensor d_projected =
      branch_gradient(pass, site_ + ".mlp.resid", d_residual, later.d_projected, scratch);
  const Tensor d_hidden =
      weights_now ? scratch.allocate(x.dtype(), kept.hidden.shape()) : later.d_hidden;
  const Tensor d_norm =
      scratch.allocate(pass.sum->share().partial(x.dtype()), {pass.num_tokens(), x.dim(1)});

  projection_.backward_input(stream, d_projected, d_hidden, kept.hidden);
  if (weights_now) {
    projection_.backward_weight(stream, kept.gelu, d_projected, pass.accumulate);
  }
  expansion_.backward_input(stream, d_hidden, d_norm);
  Transfer sum = pass.sum->sum(d_norm);
  if (weights_now) {
    const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
    pass.sum->gather(kept.norm.y, y).wait();
    expansion_.backward_weight(stream, y, d_hidden, pass.accumulate);
  }
  sum.wait();
  norm_.backward(stream, x, kept.norm, pass.sum->own_rows(d_norm), d_residual, Accumulate::yes);
}

void MlpLayer::backward_weight(const Pass& pass,
                               const MlpActivations& kept,
                               const MlpGradients& later) const {
  ArenaScope scratch(pass.stream.workspace());
  const Tensor y = pass.sum->allocate_whole(scratch, kept.norm.y);
  Transfer gathered = pass.sum->gather(kept.norm.y, y);
  projection_.backward_weight(pass.stream, kept.gelu, later.d_projected, pass.accumulate);
  gathered.wait();
  expansion_.backward_weight(pass.stream, y, later.d_hidden, pass.accumulate);
}

std::size_t MlpLayer::workspace_bytes(const ModelConfig& config,
                                      const LayerShape& shape,
                                      const Workers& workers) {
  const std::int64_t N = shape.num_tokens();
  const std::int64_t C = config.hidden;
  const std::int64_t f = shape.ffn(config);
  const DType dtype = shape.dtype;
  const std::size_t held = Arena::aligned_bytes(dtype, {N, C}) +
                           Arena::aligned_bytes(shape.partial(), {N, C}) +
                           Arena::aligned_bytes(dtype, {N, f}) + shape.whole_bytes(C);
  return held + std::max({Linear::workspace_bytes(N, {C, f}, dtype, shape.partial(), workers),
                          Linear::workspace_bytes(N, {f, C}, dtype, shape.partial(), workers),
                          layer_norm_workspace_bytes(shape.num_rows(), C, workers)});
}

}  // namespace slackline
