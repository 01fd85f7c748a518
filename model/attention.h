#pragma once

#include <string>

#include "core/tensor/arena.h"
#include "core/tensor/workers.h"
#include "model/layer_shape.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/pass.h"

namespace slackline {

// What the attention half of a block keeps for its backward pass. A tensor rank has `width` columns
// of each of Q, K and V, those of its heads.
struct AttentionActivations {
  NormActivations norm;  // (n, C)
  Tensor qkv;            // (N, 3 width)
  Tensor context;        // (N, width): softmax(Q K^T) V, before the output projection
  Tensor log_sum_exp;    // (B, heads, T) f32
};

[[nodiscard]] AttentionActivations allocate_attention_activations(Arena& arena,
                                                                  const ModelConfig& config,
                                                                  const LayerShape& shape);

// What the weight gradients are made of beside the activations, when they are made later than the
// input gradient; empty when they are made at once.
struct AttentionGradients {
  Tensor d_projected{};  // (N, C)
  Tensor d_qkv{};        // (N, 3 width)
};

[[nodiscard]] AttentionGradients allocate_attention_gradients(Arena& arena,
                                                              const ModelConfig& config,
                                                              const LayerShape& shape);

// out = x + dropout(projection(attention(qkv(norm(x))))).
class AttentionLayer {
 public:
  AttentionLayer(Parameters& parameters, const ModelConfig& config, int layer);

  // The norm of x, which the caller makes together with x or after it.
  [[nodiscard]] FollowingNorm norm_of(const AttentionActivations& kept) const {
    return {norm_, kept.norm, ModelPart::layer, layer_};
  }

  // x and out are (n, C). REQUIRES: kept.norm is made.
  void forward(const Pass& pass,
               const Tensor& x,
               const AttentionActivations& kept,
               const Tensor& out,
               const FollowingNorm& next) const;

  // d_residual (n, C) holds the gradient of `out` and is turned in place into that of x. Weight
  // gradients are made too, beside the transfer of the input gradient, unless `later` has room to
  // keep what they need.
  void backward(const Pass& pass,
                const Tensor& x,
                const AttentionActivations& kept,
                const AttentionGradients& later,
                const Tensor& d_residual) const;

  // The weight gradients that backward left. REQUIRES: `later` as backward filled it.
  void backward_weight(const Pass& pass,
                       const AttentionActivations& kept,
                       const AttentionGradients& later) const;

  // Scratch of a forward or backward pass.
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const LayerShape& shape,
                                                   const Workers& workers);

 private:
  void attend(const Pass& pass, const AttentionActivations& kept) const;
  void attend_backward(const Pass& pass,
                       const AttentionActivations& kept,
                       const Tensor& d_context,
                       const Tensor& d_qkv) const;

  int layer_;
  int num_heads_;
  std::int64_t first_head_;
  std::string site_;
  Norm norm_;
  Linear qkv_;
  Linear projection_;
};

}  // namespace slackline
