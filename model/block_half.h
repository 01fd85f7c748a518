#pragma once

#include <optional>
#include <string>

#include "core/tensor/arena.h"
#include "core/tensor/workers.h"
#include "model/layer_shape.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/pass.h"

namespace slackline {

// The activations that a half of a block keeps for its backward pass. The columns of wide and inner
// are a tensor rank's own: those of its heads, `width` of each of Q, K and V; or f, its part of F.
//
//                            attention                        mlp
struct HalfActivations {
  NormActivations norm;  //    (n, C)                           (n, C)
  Tensor wide;           //    (N, 3 width): Q, K and V         (N, f): before GELU
  Tensor inner;          //    (N, width): softmax(Q K^T) V     (N, f): after GELU
  Tensor log_sum_exp{};  //    (B, heads, T) f32                none
};

// The gradients that weight gradients are made of beside the activations, when they are made later
// than the input gradient; empty when they are made at once.
struct HalfGradients {
  Tensor d_projected{};  // (N, C)
  Tensor d_wide{};       // as HalfActivations::wide
};

// One half of a pre-norm transformer block. A block is two of them, one after the other, and each
// adds a branch to the residual stream x:
//
//   attention  (Q, K, V) = norm(x) W_qkv + b               (N, C) -> (N, 3 C)
//              O = softmax(causal(Q K^T / sqrt(D))) V      each of H heads for itself, (N, C)
//              out = x + dropout(O W_o + b)                (N, C) -> (N, C)
//
//   mlp        U = norm(x) W_fc + b                        (N, C) -> (N, F)
//              out = x + dropout(GELU(U) W_proj + b)       (N, F) -> (N, C)
//
// So both are a norm, a first product, what happens to its columns (attention, or GELU), and a last
// product. Of several tensor ranks each has some heads, or some columns of U: it reads all rows of
// norm(x), and its last product is a partial sum, which the ranks add up.
class BlockHalf {
 public:
  enum class Kind { attention, mlp };

  BlockHalf(Parameters& parameters, const ModelConfig& config, int layer, Kind kind);

  // The norm of x, which the caller makes together with x or after it.
  [[nodiscard]] FollowingNorm norm_of(const HalfActivations& kept) const {
    return {norm_, kept.norm, ModelPart::layer, layer_};
  }

  // x and out are (n, C); `next`, the norm of out, may lie where another half's activations do.
  // REQUIRES: kept.norm is made.
  void forward(const Pass& pass,
               const Tensor& x,
               const HalfActivations& kept,
               const Tensor& out,
               const std::optional<FollowingNorm>& next) const;

  // Makes the rest of `kept` from kept.norm: forward without its last product, for recomputation.
  void expand(const Pass& pass, const HalfActivations& kept) const;

  // d_residual (n, C) holds the gradient of `out` and is turned in place into that of x. Weight
  // gradients are made too, beside the transfer of the input gradient, unless `later` has room to
  // keep what they need.
  void backward(const Pass& pass,
                const Tensor& x,
                const HalfActivations& kept,
                const HalfGradients& later,
                const Tensor& d_residual) const;

  // The weight gradients that backward left. REQUIRES: `later` as backward filled it.
  void backward_weight(const Pass& pass,
                       const HalfActivations& kept,
                       const HalfGradients& later) const;

  [[nodiscard]] static HalfActivations allocate(Arena& arena,
                                                const ModelConfig& config,
                                                const LayerShape& shape,
                                                Kind kind);
  [[nodiscard]] static HalfGradients allocate_gradients(Arena& arena,
                                                        const ModelConfig& config,
                                                        const LayerShape& shape,
                                                        Kind kind);

  // Scratch of a forward or backward pass, of whichever kind takes more.
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const LayerShape& shape,
                                                   const Workers& workers);

 private:
  void attend(const Pass& pass, const HalfActivations& kept) const;
  void attend_backward(const Pass& pass,
                       const HalfActivations& kept,
                       const Tensor& d_context,
                       const Tensor& d_qkv) const;

  Kind kind_;
  int layer_;
  int num_heads_;
  std::int64_t first_head_;
  std::string site_;  // "h.3": begins the names of parameters and dropout sites
  Norm norm_;
  Linear first_;
  Linear last_;
};

}  // namespace slackline
