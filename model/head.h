#pragma once

#include "model/norm.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace slackline {

// Output projection and cross-entropy in one op that works through chunks of tokens, so logits of
// a whole batch never exist. The table is the token embedding's when tied.
class Head {
 public:
  Head(Parameters& parameters, const ModelConfig& config);

  // Sum of the tokens' losses (in double, in token order). x is (N, C).
  [[nodiscard]] double loss(const Pass& pass, const Tensor& x) const;

  // The same, and the gradients of scale * sum: d_x (N, C) is written, the table's is written or
  // added to as the pass says.
  [[nodiscard]] double loss_and_gradient(const Pass& pass,
                                         const Tensor& x,
                                         const Tensor& d_x,
                                         float scale) const;

  // logits (N, V) f32, for generation and tests. REQUIRES: compute type f32.
  void logits(StreamView stream, const Tensor& x, const Tensor& logits) const;

  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   BatchShape shape,
                                                   DType dtype,
                                                   int num_threads);

 private:
  Parameter* table_;
};

}  // namespace slackline
