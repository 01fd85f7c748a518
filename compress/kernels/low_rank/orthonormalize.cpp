#include "compress/kernels/low_rank/orthonormalize.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(void orthonormalize(StreamView stream,
                                std::span<const Tensor> matrices,
                                Orthogonalization method))

namespace cpu {
std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices, int num_threads);
}

namespace cuda {
[[gnu::weak]] std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices);
}

void orthonormalize(StreamView stream, std::span<const Tensor> matrices, Orthogonalization method) {
  for (const Tensor& matrix : matrices) {
    SL_CHECK(matrix.shape().rank() == 2, "orthonormalize takes matrices");
    check_operand(matrix, {"orthonormalize matrix", DType::f32, matrix.shape()});
    SL_CHECK(matrix.dim(1) <= matrix.dim(0),
             "orthonormalize has more columns than rows: " + matrix.shape().to_string());
  }
  SL_BACKEND(stream, orthonormalize, stream, matrices, method);
}

std::size_t orthonormalize_workspace_bytes(std::span<const Tensor> matrices,
                                           const Workers& workers) {
  return workers.device == Device::cuda
             ? cuda::orthonormalize_workspace_bytes(matrices)
             : cpu::orthonormalize_workspace_bytes(matrices, workers.num_threads);
}

}  // namespace slackline
