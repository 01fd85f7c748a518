#pragma once

#include "model/model_config.h"

namespace slackline {

// Floating-point operations of one token in each part of the model. A multiply-add counts twice.
// Norms, GELU, softmax and dropout are left out: they are bound by memory. Everything that is
// derived from operations (utilization, assumed costs, the split into stages) is a sum over these.

// The products with a weight matrix, in the order of the forward pass.
enum class WeightProduct { qkv, attention_projection, expansion, mlp_projection, logits };

// Operations of the product itself. The gradient of its input costs the same, and so does that of
// its weight where it is made.
[[nodiscard]] double product_flops(const ModelConfig& config, WeightProduct product);

// Operations of the gradient of its weight, where that is trained: of a layer's, the mean over all
// layers.
[[nodiscard]] double weight_gradient_flops(const ModelConfig& config, WeightProduct product);

// Scores and context of one layer: the causal half of the square, averaged over positions. The
// backward pass costs twice as much.
[[nodiscard]] double attention_flops(const ModelConfig& config);

// Stands for work that moves C numbers and multiplies none: a lookup in a table, the final norm. It
// counts as a product with one column, next to nothing but not zero.
[[nodiscard]] double lookup_flops(const ModelConfig& config);

struct PassFlops {
  double forward = 0.0;
  double backward_input = 0.0;
  double backward_weight = 0.0;
  double recompute = 0.0;  // the forward pass again, before backward_input

  [[nodiscard]] double backward() const { return recompute + backward_input + backward_weight; }
};

// The layer's recomputation counts as a whole forward pass, although its last product is not made
// again; it is 0 where the config recomputes nothing.
[[nodiscard]] PassFlops layer_flops(const ModelConfig& config);

// A stage makes the logits in its backward pass, chunk by chunk with their gradients. It makes the
// weight gradients of head and embedding there too, even if those of layers are made later.
[[nodiscard]] PassFlops head_flops(const ModelConfig& config);
[[nodiscard]] PassFlops embedding_flops(const ModelConfig& config);

}  // namespace slackline
