#include "compress/kernels/sparse/top_k.h"

#include <limits>

#include "compress/kernels/sparse/top_k_plan.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/operand.h"

namespace slackline {

SL_BACKENDS_OF_TYPE(
    void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept))

namespace cuda {
[[gnu::weak]] std::size_t top_k_workspace_bytes(std::size_t n, std::size_t k);
}

void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  const std::size_t n = values.num_elements();
  const std::size_t k = indices.num_elements();
  const Shape row{static_cast<std::int64_t>(k)};
  check_operand(values, {"top_k values", DType::f32, values.shape()});
  check_operand(indices, {"top_k indices", DType::u32, row});
  check_operand(kept, {"top_k kept", kept.dtype(), row});
  SL_CHECK(k <= n && n <= std::numeric_limits<std::uint32_t>::max(),
           "top_k of " + std::to_string(k) + " of " + std::to_string(n) + " elements");
  if (k > 0) {
    SL_DISPATCH(stream, kept.dtype(), top_k, stream, values, indices, kept);
  }
}

std::size_t top_k_workspace_bytes(std::size_t n, std::size_t k, const Workers& workers) {
  if (workers.device == Device::cuda) {
    return cuda::top_k_workspace_bytes(n, k);
  }
  Arena arena = Arena::measuring();
  const TopKScratch scratch(arena, TopKPlan(n, k), n, workers.num_threads);
  return arena.high_water();
}

}  // namespace slackline
