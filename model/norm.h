#pragma once

#include "core/kernels/norm/layer_norm.h"
#include "core/tensor/stream.h"
#include "model/parameters.h"

namespace slackline {

// What a norm keeps for its backward pass, all of N rows.
struct NormActivations {
  Tensor y;     // (N, C)
  Tensor mean;  // (N) f32
  Tensor rstd;  // (N) f32
};

// LayerNorm with weight and bias. Views of two parameters.
class Norm {
 public:
  Norm(Parameters& parameters, const std::string& name)
      : weight_(&parameters.at(name + ".weight")), bias_(&parameters.at(name + ".bias")) {}

  void forward(StreamView stream, const Tensor& x, const NormActivations& kept) const;

  // Makes sum.out first, then its norm.
  void forward(StreamView stream, const DropoutAdd& sum, const NormActivations& kept) const;

  // dx is written or added to; weight and bias gradients are added to.
  void backward(StreamView stream,
                const Tensor& x,
                const NormActivations& kept,
                const Tensor& dy,
                const Tensor& dx,
                Accumulate accumulate_dx) const;

 private:
  [[nodiscard]] LayerNormForward forward_of(const Tensor& x, const NormActivations& kept) const;

  Parameter* weight_;
  Parameter* bias_;
};

// The norm of what a half of a block makes, to be made with it.
struct FollowingNorm {
  const Norm& norm;
  const NormActivations& kept;
  ModelPart part{};  // whose parameters it reads
  int layer = -1;
};

[[nodiscard]] NormActivations allocate_norm_activations(Arena& arena,
                                                        std::int64_t N,
                                                        std::int64_t C,
                                                        DType dtype);

}  // namespace slackline
