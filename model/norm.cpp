#include "model/norm.h"

#include "core/tensor/profile.h"

namespace slackline {

LayerNormForward Norm::forward_of(const Tensor& x, const NormActivations& kept) const {
  return {.x = x,
          .weight = weight_->weight,
          .bias = bias_->weight,
          .y = kept.y,
          .mean = kept.mean,
          .rstd = kept.rstd};
}

void Norm::forward(StreamView stream, const Tensor& x, const NormActivations& kept) const {
  const ProfileRange range(stream, "layer norm");
  layer_norm_forward(stream, forward_of(x, kept));
}

void Norm::forward(StreamView stream, const DropoutAdd& sum, const NormActivations& kept) const {
  const ProfileRange range(stream, "residual and layer norm");
  layer_norm_of_sum(stream, sum, forward_of(sum.out, kept));
}

void Norm::backward(StreamView stream,
                    const Tensor& x,
                    const NormActivations& kept,
                    const Tensor& dy,
                    const Tensor& dx,
                    Accumulate accumulate_dx) const {
  const ProfileRange range(stream, "layer norm");
  layer_norm_backward(stream,
                      {.x = x,
                       .weight = weight_->weight,
                       .mean = kept.mean,
                       .rstd = kept.rstd,
                       .dy = dy,
                       .dx = dx,
                       .accumulate_dx = accumulate_dx,
                       .d_weight = weight_->gradient,
                       .d_bias = bias_->gradient});
}

NormActivations allocate_norm_activations(Arena& arena,
                                          std::int64_t N,
                                          std::int64_t C,
                                          DType dtype) {
  return {.y = arena.allocate(dtype, {N, C}),
          .mean = arena.allocate(DType::f32, {N}),
          .rstd = arena.allocate(DType::f32, {N})};
}

}  // namespace slackline
