#include "model/block.h"

#include <algorithm>

#include "model/residual.h"

namespace slackline {

BlockActivations allocate_block_activations(Arena& arena,
                                            const ModelConfig& config,
                                            const LayerShape& shape) {
  return {.attention = allocate_attention_activations(arena, config, shape),
          .middle = arena.allocate(shape.dtype, {shape.num_rows(), config.hidden}),
          .mlp = allocate_mlp_activations(arena, config, shape)};
}

BlockGradients allocate_block_gradients(Arena& arena,
                                        const ModelConfig& config,
                                        const LayerShape& shape) {
  return {.attention = allocate_attention_gradients(arena, config, shape),
          .mlp = allocate_mlp_gradients(arena, config, shape)};
}

void Block::forward(const Pass& pass,
                    const Tensor& x,
                    const BlockActivations& kept,
                    const Tensor& out,
                    const std::optional<FollowingNorm>& next) const {
  attention_.forward(pass, x, kept.attention, kept.middle, mlp_.norm_of(kept.mlp));
  mlp_.forward(pass, kept.middle, kept.mlp, out, next);
}

void Block::recompute(const Pass& pass, const Tensor& x, const BlockActivations& kept) const {
  make_norm(pass, x, norm_of(kept));
  attention_.forward(pass, x, kept.attention, kept.middle, mlp_.norm_of(kept.mlp));
  mlp_.expand(pass, kept.mlp);
}

void Block::backward(const Pass& pass,
                     const Tensor& x,
                     const BlockActivations& kept,
                     const BlockGradients& later,
                     const Tensor& d_residual) const {
  mlp_.backward(pass, kept.middle, kept.mlp, later.mlp, d_residual);
  attention_.backward(pass, x, kept.attention, later.attention, d_residual);
}

void Block::backward_weight(const Pass& pass,
                            const BlockActivations& kept,
                            const BlockGradients& later) const {
  mlp_.backward_weight(pass, kept.mlp, later.mlp);
  attention_.backward_weight(pass, kept.attention, later.attention);
}

std::size_t Block::workspace_bytes(const ModelConfig& config,
                                   const LayerShape& shape,
                                   const Workers& workers) {
  return std::max(AttentionLayer::workspace_bytes(config, shape, workers),
                  MlpLayer::workspace_bytes(config, shape, workers));
}

}  // namespace slackline
