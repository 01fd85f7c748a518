#pragma once

#include <optional>

#include "model/block_half.h"

namespace slackline {

// What one transformer block keeps between forward and backward, its input apart.
struct BlockActivations {
  HalfActivations attention;
  Tensor middle;  // (n, C): the residual stream between the two halves
  HalfActivations mlp;
};

[[nodiscard]] BlockActivations allocate_block_activations(Arena& arena,
                                                          const ModelConfig& config,
                                                          const LayerShape& shape);

// As HalfGradients: what weight gradients need when they are made later.
struct BlockGradients {
  HalfGradients attention{};
  HalfGradients mlp{};
};

[[nodiscard]] BlockGradients allocate_block_gradients(Arena& arena,
                                                      const ModelConfig& config,
                                                      const LayerShape& shape);

// One pre-norm transformer block: attention half, then feed-forward half.
class Block {
 public:
  Block(Parameters& parameters, const ModelConfig& config, int layer)
      : attention_(parameters, config, layer, BlockHalf::Kind::attention),
        mlp_(parameters, config, layer, BlockHalf::Kind::mlp) {}

  // The norm of x, which the caller makes together with x or after it.
  [[nodiscard]] FollowingNorm norm_of(const BlockActivations& kept) const {
    return attention_.norm_of(kept.attention);
  }

  // x and out are (n, C); `next`, the norm of out, may lie where another block's activations do.
  // REQUIRES: norm_of(kept) is made.
  void forward(const Pass& pass,
               const Tensor& x,
               const BlockActivations& kept,
               const Tensor& out,
               const std::optional<FollowingNorm>& next) const;

  // Everything in `kept` again from x, bit for bit; the block's output is not made.
  void recompute(const Pass& pass, const Tensor& x, const BlockActivations& kept) const;

  // d_residual (n, C): gradient of `out` on entry, of x on return. Weight gradients are made at
  // once, or by backward_weight when `later` has room for what they need.
  void backward(const Pass& pass,
                const Tensor& x,
                const BlockActivations& kept,
                const BlockGradients& later,
                const Tensor& d_residual) const;

  void backward_weight(const Pass& pass,
                       const BlockActivations& kept,
                       const BlockGradients& later) const;

 private:
  BlockHalf attention_;
  BlockHalf mlp_;
};

}  // namespace slackline
