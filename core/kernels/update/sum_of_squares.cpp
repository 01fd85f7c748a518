#include "core/kernels/update/sum_of_squares.h"

#include <numeric>
#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

// A sum for each tensor, in their order.
SL_BACKENDS(void sums_of_squares(StreamView stream,
                                 std::span<const Tensor> tensors,
                                 std::span<double> sums))
SL_BACKENDS(void counts_at_least(
    StreamView stream, std::span<const Tensor> tensors, float limit, std::span<double> counts))
SL_BACKENDS(void sums_of_squared_directions(StreamView stream,
                                            std::span<const Moments> moments,
                                            const AdamwStep& step,
                                            std::span<double> sums))
SL_BACKENDS(void sums_of_squared_changes(StreamView stream,
                                         std::span<const OuterMemories> memories,
                                         const OuterStep& step,
                                         std::span<double> sums))

namespace cuda {
[[gnu::weak]] std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors);
}  // namespace cuda

std::vector<double> sums_of_squares(StreamView stream, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    check_operand(tensor, {"sum_of_squares tensor", DType::f32, tensor.shape()});
  }
  std::vector<double> sums(tensors.size());
  SL_BACKEND(stream, sums_of_squares, stream, tensors, sums);
  return sums;
}

double count_at_least(StreamView stream, std::span<const Tensor> tensors, float limit) {
  for (const Tensor& tensor : tensors) {
    check_operand(tensor, {"count_at_least tensor", DType::f32, tensor.shape()});
  }
  std::vector<double> counts(tensors.size());
  SL_BACKEND(stream, counts_at_least, stream, tensors, limit, counts);
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

std::vector<double> sums_of_squared_directions(StreamView stream,
                                               std::span<const Moments> moments,
                                               const AdamwStep& step) {
  for (const auto& [m, v] : moments) {
    check_operand(m, {"sums_of_squared_directions m", DType::f32, m.shape()});
    check_operand(v, {"sums_of_squared_directions v", DType::f32, m.shape()});
  }
  SL_CHECK(step.step >= 1, "step " + std::to_string(step.step));
  std::vector<double> sums(moments.size());
  SL_BACKEND(stream, sums_of_squared_directions, stream, moments, step, sums);
  return sums;
}

std::vector<double> sums_of_squared_changes(StreamView stream,
                                            std::span<const OuterMemories> memories,
                                            const OuterStep& step) {
  for (const auto& [momentum, difference] : memories) {
    check_operand(momentum, {"sums_of_squared_changes momentum", DType::f32, momentum.shape()});
    check_operand(difference, {"sums_of_squared_changes difference", DType::f32, momentum.shape()});
  }
  std::vector<double> sums(memories.size());
  SL_BACKEND(stream, sums_of_squared_changes, stream, memories, step, sums);
  return sums;
}

std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors,
                                            const Workers& workers) {
  return workers.device == Device::cuda ? cuda::sums_of_squares_workspace_bytes(tensors) : 0;
}

}  // namespace slackline
