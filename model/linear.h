#pragma once

#include "core/kernels/matmul/matmul.h"
#include "core/tensor/stream.h"
#include "core/tensor/workers.h"
#include "model/parameters.h"

namespace slackline {

// y = x W + b with W (in, out), as Hugging Face's Conv1D stores it. Views of two parameters; the
// Parameters object owns them and must outlive this.
//
// On several tensor ranks W is cut. By columns: y has this rank's columns, and dx is a partial sum.
// By rows: x has this rank's columns and y is a partial sum, to which rank 0 alone adds b; dy is
// whole, so every rank makes the same db. The caller sums (TensorSum).
//
// The backward pass is two calls, so that a schedule may run them at different times:
// backward_input gives what the previous layer waits for, backward_weight what only the optimizer
// needs.
class Linear {
 public:
  // Binds `name`.weight and `name`.bias.
  Linear(Parameters& parameters, const std::string& name);

  // x (N, in), y (N, out). With `gelu` given, y keeps the pre-activation and gelu = GELU(y).
  void forward(StreamView stream, const Tensor& x, const Tensor& y, const Tensor& gelu = {}) const;

  // dx = dy W^T, times GELU'(gelu_input) when that is given.
  void backward_input(StreamView stream,
                      const Tensor& dy,
                      const Tensor& dx,
                      const Tensor& gelu_input = {}) const;

  // dW = x^T dy, written or added; db += column sums of dy: of what is trained.
  void backward_weight(StreamView stream,
                       const Tensor& x,
                       const Tensor& dy,
                       Accumulate accumulate) const;

  // Scratch of the three calls for N tokens of a (in, out) weight. `partial` is the type of y, or
  // of dx, where it is a partial sum.
  [[nodiscard]] static std::size_t workspace_bytes(
      std::int64_t N, const Shape& in_out, DType dtype, DType partial, const Workers& workers);

 private:
  Parameter* weight_;
  Parameter* bias_;
  bool adds_bias_;
  bool shares_bias_;  // every tensor rank makes the same gradient of it
};

}  // namespace slackline
