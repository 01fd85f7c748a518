#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor/workers.h"
#include "model/layer_shape.h"
#include "model/parameters.h"
#include "model/pass.h"

namespace slackline {

// Token and position tables. When the token table is tied to the head, gradients of the lookup
// gather in Parameters::input_gradient and join the head's when the step's passes have ended
// as input + head. Only rows of tokens that occurred are touched.
//
// Where tensor ranks share the vocabulary, each looks up the tokens it has rows for and the sum
// over ranks puts the lookups together: all but one are zero, so it is exact. Positions are added
// after the sum, to own rows. Backward, every rank gets the gradient of all rows, so that each
// makes its token rows in the same order as one rank would, and all make the same position rows.
class Embedding {
 public:
  explicit Embedding(Parameters& parameters);

  // out = dropout(token row + position row), this rank's rows of the (N, C) residual stream.
  void forward(const Pass& pass, const Tensor& out) const;

  // d_out is of the same rows; may be overwritten.
  void backward(const Pass& pass, const Tensor& d_out);

  // Adds the input gradient to the tied table's and clears it. Once per step, after the last
  // backward pass; does nothing when untied.
  void finish_gradient(StreamView stream);

  [[nodiscard]] static std::size_t workspace_bytes(const ModelConfig& config,
                                                   const LayerShape& shape,
                                                   const Workers& workers);

 private:
  [[nodiscard]] std::int64_t first_token(const Pass& pass) const {
    return pass.sum->share().first_of(token_table_->spec.shape[0]);
  }

  Parameters* parameters_;
  Parameter* token_table_;
  Parameter* position_table_;
  std::vector<std::uint8_t> touched_;  // of own rows: those of the input gradient that are not zero
};

}  // namespace slackline
