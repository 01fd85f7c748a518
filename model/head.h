#pragma once

#include <cstdint>

#include "model/layer_shape.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace slackline {

// A head makes the gradient of scale * the sum of its losses where d_x is given.
struct HeadGradient {
  Tensor d_x{};  // written; empty: no gradients
  float scale = 1.0F;
};

// Output projection and cross-entropy, chunk of tokens by chunk, so logits of a whole batch never
// exist. The table is the token embedding's when tied.
//
// Where tensor ranks share the vocabulary, each has rows TensorShare::first_of(V) and on of the
// table and makes the logits of those columns for every token: the ranks exchange three numbers a
// token (cross_entropy.h), and sum their gradients of x. All ranks end with the same losses, bit
// for bit. x and d_x are this rank's rows of the residual stream; d_x is a sum
// over ranks, of the type that TensorShare::partial says.
class Head {
 public:
  Head(Parameters& parameters, const ModelConfig& config);

  // Adds all tokens' losses to those of the pass, and makes their gradients: that of the table is
  // written or added to as the pass says.
  void add_loss(const Pass& pass, const Tensor& x, const HeadGradient& gradient = {}) const;

  // logits (N, V) f32, for generation and tests. REQUIRES: compute type f32, one tensor rank.
  void logits(StreamView stream, const Tensor& x, const Tensor& logits) const;

  // How many of N tokens run at a time, the last of them fewer: the same on every rank, since a
  // chunk's ranks exchange statistics. A multiple of 8, so it may exceed N.
  [[nodiscard]] static std::int64_t chunk_tokens(std::int64_t N,
                                                 std::int64_t vocab,
                                                 Device device,
                                                 const TensorShare& share);

  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const LayerShape& shape,
                                                   const Workers& workers);

 private:
  Parameter* table_;
};

}  // namespace slackline
