#include "model/block.h"

#include "model/residual.h"

namespace slackline {

BlockActivations allocate_block_activations(Arena& arena,
                                            const ModelConfig& config,
                                            const LayerShape& shape) {
  return {.attention = BlockHalf::allocate(arena, config, shape, BlockHalf::Kind::attention),
          .middle = arena.allocate(shape.dtype, {shape.num_rows(), config.hidden}),
          .mlp = BlockHalf::allocate(arena, config, shape, BlockHalf::Kind::mlp)};
}

BlockGradients allocate_block_gradients(Arena& arena,
                                        const ModelConfig& config,
                                        const LayerShape& shape) {
  return {
      .attention = BlockHalf::allocate_gradients(arena, config, shape, BlockHalf::Kind::attention),
      .mlp = BlockHalf::allocate_gradients(arena, config, shape, BlockHalf::Kind::mlp)};
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

}  // namespace slackline
