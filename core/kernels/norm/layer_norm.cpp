#include "core/kernels/norm/layer_norm.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(void layer_norm_forward(StreamView stream, const LayerNormForward& args))
SL_BACKENDS_OF_TYPE(void layer_norm_backward(StreamView stream, const LayerNormBackward& args))
SL_BACKENDS(std::size_t layer_norm_workspace_bytes(std::int64_t N, std::int64_t C))

namespace cuda {

// False, and nothing is queued, where rows are not moved in packs.
template <typename T>
[[gnu::weak]] bool layer_norm_of_sum(StreamView stream,
                                     const DropoutAdd& sum,
                                     const LayerNormForward& norm);

}  // namespace cuda

namespace {

void check(const LayerNormForward& args) {
  const Tensor& x = args.x;
  SL_CHECK_EQ(x.shape().rank(), 2);
  const Shape per_row = {x.dim(0)};
  const Shape per_column = {x.dim(1)};
  check_operand(args.weight, {"layer_norm_forward weight", DType::f32, per_column});
  check_operand(args.bias, {"layer_norm_forward bias", DType::f32, per_column});
  check_operand(args.y, {"layer_norm_forward y", x.dtype(), x.shape()});
  check_operand(args.mean, {"layer_norm_forward mean", DType::f32, per_row});
  check_operand(args.rstd, {"layer_norm_forward rstd", DType::f32, per_row});
}

}  // namespace

void layer_norm_forward(StreamView stream, const LayerNormForward& args) {
  check(args);
  SL_DISPATCH(stream, args.x.dtype(), layer_norm_forward, stream, args);
}

void layer_norm_of_sum(StreamView stream, const DropoutAdd& sum, const LayerNormForward& norm) {
  check(norm);
  SL_CHECK(norm.x.raw() == sum.out.raw() && !sum.residual.empty(), "the norm of another sum");
  SL_CHECK(sum.out.raw() != sum.x.raw() && sum.out.raw() != sum.residual.raw(), "a sum in place");
  if (stream.device() == Device::cuda) {
    check_dropout_add(sum);
    const bool made = norm.x.dtype() == DType::f32
                          ? cuda::layer_norm_of_sum<float>(stream, sum, norm)
                          : cuda::layer_norm_of_sum<BFloat16>(stream, sum, norm);
    if (made) {
      return;
    }
  }
  dropout_add(stream, sum);
  layer_norm_forward(stream, norm);
}

void layer_norm_backward(StreamView stream, const LayerNormBackward& args) {
  const Tensor& x = args.x;
  SL_CHECK_EQ(x.shape().rank(), 2);
  const Shape per_row = {x.dim(0)};
  const Shape per_column = {x.dim(1)};
  check_operand(args.weight, {"layer_norm_backward weight", DType::f32, per_column});
  check_operand(args.mean, {"layer_norm_backward mean", DType::f32, per_row});
  check_operand(args.rstd, {"layer_norm_backward rstd", DType::f32, per_row});
  const DType dy = args.dy.dtype() == DType::f32 ? DType::f32 : x.dtype();
  check_operand(args.dy, {"layer_norm_backward dy", dy, x.shape()});
  check_operand(args.dx, {"layer_norm_backward dx", x.dtype(), x.shape()});
  if (!args.d_weight.empty()) {
    check_operand(args.d_weight, {"layer_norm_backward d_weight", DType::f32, per_column});
  }
  if (!args.d_bias.empty()) {
    check_operand(args.d_bias, {"layer_norm_backward d_bias", DType::f32, per_column});
  }
  SL_DISPATCH(stream, x.dtype(), layer_norm_backward, stream, args);
}

std::size_t layer_norm_workspace_bytes(std::int64_t N, std::int64_t C, const Workers& workers) {
  return workers.device == Device::cuda ? cuda::layer_norm_workspace_bytes(N, C)
                                        : cpu::layer_norm_workspace_bytes(N, C);
}

}  // namespace slackline
