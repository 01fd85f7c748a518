#pragma once

#include <string>

#include "core/arena.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/pass.h"

namespace slackline {

// What the feed-forward half of a block keeps for its backward pass.
struct MlpActivations {
  NormActivations norm;
  Tensor hidden;  // (N, F), before GELU
  Tensor gelu;    // (N, F)
};

[[nodiscard]] MlpActivations allocate_mlp_activations(Arena& arena,
                                                      const ModelConfig& config,
                                                      BatchShape shape,
                                                      DType dtype);

// out = x + dropout(projection(gelu(expansion(norm(x))))).
class MlpLayer {
 public:
  MlpLayer(Parameters& parameters, const ModelConfig& config, int layer);

  void forward(const Pass& pass,
               const Tensor& x,
               const MlpActivations& kept,
               const Tensor& out) const;

  // Everything in `kept` and nothing else: the first part of forward, for recomputation.
  void expand(const Pass& pass, const Tensor& x, const MlpActivations& kept) const;

  // d_residual (N, C) holds the gradient of `out` and is turned in place into that of x.
  void backward(const Pass& pass,
                const Tensor& x,
                const MlpActivations& kept,
                const Tensor& d_residual) const;

  // Scratch of a forward or backward pass.
  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   BatchShape shape,
                                                   DType dtype,
                                                   int num_threads);

 private:
  ModelConfig config_;
  std::string site_;
  Norm norm_;
  Linear expansion_;
  Linear projection_;
};

}  // namespace slackline
