#pragma once

#include <string>

#include "core/arena.h"
#include "model/linear.h"
#include "model/norm.h"
#include "model/pass.h"

namespace slackline {

// What the attention half of a block keeps for its backward pass.
struct AttentionActivations {
  NormActivations norm;
  Tensor qkv;          // (N, 3C)
  Tensor context;      // (N, C): softmax(Q K^T) V, before the output projection
  Tensor log_sum_exp;  // (B, H, T) f32
};

[[nodiscard]] AttentionActivations allocate_attention_activations(Arena& arena,
                                                                  const ModelConfig& config,
                                                                  BatchShape shape,
                                                                  DType dtype);

// out = x + dropout(projection(attention(qkv(norm(x))))).
class AttentionLayer {
 public:
  AttentionLayer(Parameters& parameters, const ModelConfig& config, int layer);

  void forward(const Pass& pass,
               const Tensor& x,
               const AttentionActivations& kept,
               const Tensor& out) const;

  // d_residual (N, C) holds the gradient of `out` and is turned in place into that of x.
  void backward(const Pass& pass,
                const Tensor& x,
                const AttentionActivations& kept,
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
  Linear qkv_;
  Linear projection_;
};

}  // namespace slackline
