#include "core/kernels/sum_of_squares.h"

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS(double sum_of_squares(StreamView stream, std::span<const float> values))

namespace cuda {
[[gnu::weak]] std::size_t sum_of_squares_workspace_bytes(std::size_t num_elements);
}

double sum_of_squares(StreamView stream, const Tensor& tensor) {
  check_operand(tensor, {"sum_of_squares tensor", DType::f32, tensor.shape()});
  if (!computes(stream)) {
    return 0.0;
  }
  const std::span<const float> values = tensor.span<float>();
  return stream.device() == Device::cuda ? cuda::sum_of_squares(stream, values)
                                         : cpu::sum_of_squares(stream, values);
}

std::size_t sum_of_squares_workspace_bytes(std::size_t num_elements, const Workers& workers) {
  return workers.device == Device::cuda ? cuda::sum_of_squares_workspace_bytes(num_elements) : 0;
}

}  // namespace slackline
