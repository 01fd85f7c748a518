#include "core/comm/device/ordered_sum_cuda.h"
#include "core/cuda/map.h"

namespace slackline::cuda {

namespace {

struct Inputs {
  const std::byte* of_rank[kMostRanksOfSum];
  int num_ranks;
};

template <typename Wide, typename T>
__device__ Wide value_at(const Inputs& inputs, int rank, std::size_t at) {
  return static_cast<Wide>(reinterpret_cast<const T*>(inputs.of_rank[rank])[at]);
}

// A thread for each element.
template <typename Wide, typename T>
__global__ void __launch_bounds__(kMapThreads)
    sum_kernel(const __grid_constant__ Inputs inputs, bool in_pairs, std::size_t count, T* output) {
  const std::size_t at = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (at >= count) {
    return;
  }
  Wide sum = value_at<Wide, T>(inputs, 0, at) + value_at<Wide, T>(inputs, 1, at);
  if (in_pairs) {
    for (int rank = 2; rank < inputs.num_ranks; rank += 2) {
      sum += value_at<Wide, T>(inputs, rank, at) + value_at<Wide, T>(inputs, rank + 1, at);
    }
  } else {
    for (int rank = 2; rank < inputs.num_ranks; ++rank) {
      sum += value_at<Wide, T>(inputs, rank, at);
    }
  }
  output[at] = static_cast<T>(sum);
}

}  // namespace

void ordered_sum(StreamView stream, const OrderedSum& sum) {
  Inputs inputs{};
  inputs.num_ranks = static_cast<int>(sum.inputs.size());
  SL_CHECK(inputs.num_ranks >= 2 && inputs.num_ranks <= kMostRanksOfSum,
           "a sum over " + std::to_string(inputs.num_ranks) + " ranks");
  std::copy(sum.inputs.begin(), sum.inputs.end(), inputs.of_rank);
  const LaunchShape shape{.grid = blocks_for(sum.elements, kMapThreads), .block = kMapThreads};
  const bool in_pairs = sum.order == SumOrder::pairs;
  switch (sum.dtype) {
    case DType::f32:
      return launch(stream,
                    shape,
                    sum_kernel<float, float>,
                    inputs,
                    in_pairs,
                    sum.elements,
                    reinterpret_cast<float*>(sum.output));
    case DType::bf16:
      return launch(stream,
                    shape,
                    sum_kernel<float, BFloat16>,
                    inputs,
                    in_pairs,
                    sum.elements,
                    reinterpret_cast<BFloat16*>(sum.output));
    case DType::f64:
      return launch(stream,
                    shape,
                    sum_kernel<double, double>,
                    inputs,
                    in_pairs,
                    sum.elements,
                    reinterpret_cast<double*>(sum.output));
    default:
      SL_CHECK(false, "a sum over ranks of " + std::string(name_of(sum.dtype)));
  }
}

}  // namespace slackline::cuda
