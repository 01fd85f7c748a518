#include "model/block.h"

#include <algorithm>

namespace slackline {

BlockActivations allocate_block_activations(Arena& arena,
                                            const ModelConfig& config,
                                            BatchShape shape,
                                            DType dtype) {
  return {.attention = allocate_attention_activations(arena, config, shape, dtype),
          .middle = arena.allocate(dtype, {shape.num_tokens(), config.hidden}),
          .mlp = allocate_mlp_activations(arena, config, shape, dtype)};
}

void Block::forward(const Pass& pass,
                    const Tensor& x,
                    const BlockActivations& kept,
                    const Tensor& out) const {
  attention_.forward(pass, x, kept.attention, kept.middle);
  mlp_.forward(pass, kept.middle, kept.mlp, out);
}

void Block::recompute(const Pass& pass, const Tensor& x, const BlockActivations& kept) const {
  attention_.forward(pass, x, kept.attention, kept.middle);
  mlp_.expand(pass, kept.middle, kept.mlp);
}

void Block::backward(const Pass& pass,
                     const Tensor& x,
                     const BlockActivations& kept,
                     const Tensor& d_residual) const {
  mlp_.backward(pass, kept.middle, kept.mlp, d_residual);
  attention_.backward(pass, x, kept.attention, d_residual);
}

std::size_t Block::workspace_bytes(const ModelConfig& config,
                                   BatchShape shape,
                                   DType dtype,
                                   int num_threads) {
  return std::max(AttentionLayer::workspace_bytes(config, shape, dtype, num_threads),
                  MlpLayer::workspace_bytes(config, shape, dtype, num_threads));
}

}  // namespace slackline
