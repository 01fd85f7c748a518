#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "model/pass.h"

namespace slackline {

// Token and position tables. When the token table is tied to the head, gradients of the lookup
// gather in Parameters::input_gradient and join the head's when the step's passes have ended
// (CONTRACTS section 7 rule 3: input + head). Only rows of tokens that occurred are touched.
class Embedding {
 public:
  explicit Embedding(Parameters& parameters);

  // out (N, C) = dropout(token row + position row).
  void forward(const Pass& pass, const Tensor& out) const;

  // d_out (N, C); may be overwritten.
  void backward(const Pass& pass, const Tensor& d_out);

  // Adds the input gradient to the tied table's and clears it. Once per step, after the last
  // backward pass; does nothing when untied.
  void finish_gradient(StreamView stream);

 private:
  Parameters* parameters_;
  Parameter* token_table_;
  Parameter* position_table_;
  std::vector<std::uint8_t> touched_;  // (V): rows of the input gradient that are not zero
};

}  // namespace slackline
