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

// What the feed-forward half of a block keeps for its backward pass. f is F over the tensor ranks.
struct MlpActivations {
  NormActivations norm;  // (n, C)
  Tensor hidden;         // (N, f), before GELU
  Tensor gelu;           // (N, f)
};

[[nodiscard]] MlpActivations allocate_mlp_activations(Arena& arena,
                                                      const ModelConfig& config,
                                                      const LayerShape& shape);

// As AttentionGradients.
struct MlpGradients {
  Tensor d_projected{};  // (N, C)
  Tensor d_hidden{};     // (N, f)
};

[[nodiscard]] MlpGradients allocate_mlp_gradients(Arena& arena,
                                                  const ModelConfig& config,
                                                  const LayerShape& shape);

// out = x + dropout(projection(gelu(expansion(norm(x))))).
class MlpLayer {
 public:
  MlpLayer(Parameters& parameters, const ModelConfig& config, int layer);

  // The norm of x, which the caller makes together with x or after it.
  [[nodiscard]] FollowingNorm norm_of(const MlpActivations& kept) const {
    return {norm_, kept.norm, ModelPart::layer, layer_};
  }

  // x and out are (n, C). REQUIRES: kept.norm is made.
  void forward(const Pass& pass,
               const Tensor& x,
               const MlpActivations& kept,
               const Tensor& out,
               const std::optional<FollowingNorm>& next) const;

  // The rest of `kept` and nothing else: the first part of forward, for recomputation.
  void expand(const Pass& pass, const MlpActivations& kept) const;

  // As AttentionLayer::backward and backward_weight.
  void backward(const Pass& pass,
                const Tensor& x,
                const MlpActivations& kept,
                const MlpGradients& later,
                const Tensor& d_residual) const;

  void backward_weight(const Pass& pass,
                       const MlpActivations& kept,
                       const MlpGradients& later) const;

  // Scratch of a forward or backward pass.
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const LayerShape& shape,
                                                   const Workers& workers);

 private:
  int layer_;
  std::string site_;
  Norm norm_;
  Linear expansion_;
  Linear projection_;
};

}  // namespace slackline
