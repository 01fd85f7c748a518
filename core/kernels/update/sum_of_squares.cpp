#include "core/kernels/update/sum_of_squares.h"

#include <string>

#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

namespace cpu {
double sum_of_squares(StreamView stream, std::span<const float> values);
double count_at_least(StreamView stream, std::span<const float> values, float limit);
double sum_of_squared_directions(StreamView stream,
                                 std::span<const float> m,
                                 std::span<const float> v,
                                 const AdamwStep& step);
}  // namespace cpu

namespace cuda {
[[gnu::weak]] std::vector<double> sums_of_squares(StreamView stream,
                                                  std::span<const Tensor> tensors);
[[gnu::weak]] std::vector<double> counts_at_least(StreamView stream,
                                                  std::span<const Tensor> tensors,
                                                  float limit);
[[gnu::weak]] std::vector<double> sums_of_squared_directions(StreamView stream,
                                                             std::span<const Moments> moments,
                                                             const AdamwStep& step);
[[gnu::weak]] std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors);
}  // namespace cuda

std::vector<double> sums_of_squares(StreamView stream, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    check_operand(tensor, {"sum_of_squares tensor", DType::f32, tensor.shape()});
  }
  if (!computes(stream)) {
    return std::vector<double>(tensors.size());
  }
  if (stream.device() == Device::cuda) {
    return cuda::sums_of_squares(stream, tensors);
  }
  std::vector<double> sums;
  sums.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    sums.push_back(cpu::sum_of_squares(stream, tensor.span<float>()));
  }
  return sums;
}

double count_at_least(StreamView stream, std::span<const Tensor> tensors, float limit) {
  for (const Tensor& tensor : tensors) {
    check_operand(tensor, {"count_at_least tensor", DType::f32, tensor.shape()});
  }
  double count = 0.0;
  if (computes(stream) && stream.device() == Device::cuda) {
    for (const double of_tensor : cuda::counts_at_least(stream, tensors, limit)) {
      count += of_tensor;
    }
  } else if (computes(stream)) {
    for (const Tensor& tensor : tensors) {
      count += cpu::count_at_least(stream, tensor.span<float>(), limit);
    }
  }
  return count;
}

std::vector<double> sums_of_squared_directions(StreamView stream,
                                               std::span<const Moments> moments,
                                               const AdamwStep& step) {
  for (const auto& [m, v] : moments) {
    check_operand(m, {"sums_of_squared_directions m", DType::f32, m.shape()});
    check_operand(v, {"sums_of_squared_directions v", DType::f32, m.shape()});
  }
  SL_CHECK(step.step >= 1, "step " + std::to_string(step.step));
  if (!computes(stream)) {
    return std::vector<double>(moments.size());
  }
  if (stream.device() == Device::cuda) {
    return cuda::sums_of_squared_directions(stream, moments, step);
  }
  std::vector<double> sums;
  sums.reserve(moments.size());
  for (const auto& [m, v] : moments) {
    sums.push_back(cpu::sum_of_squared_directions(stream, m.span<float>(), v.span<float>(), step));
  }
  return sums;
}

std::size_t sums_of_squares_workspace_bytes(std::span<const Tensor> tensors,
                                            const Workers& workers) {
  return workers.device == Device::cuda ? cuda::sums_of_squares_workspace_bytes(tensors) : 0;
}

}  // namespace slackline
