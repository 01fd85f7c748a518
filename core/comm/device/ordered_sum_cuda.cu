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

// SumOrder of a sum, for the device.
struct Runs {
  int inner;
  int outer;
};

template <typename Wide, typename T>
__device__ Wide sum_of_inner_run(const Inputs& inputs, Runs runs, int first, std::size_t at) {
  Wide sum = value_at<Wide, T>(inputs, first, at);
  for (int i = 1; i < runs.inner; ++i) {
    sum += value_at<Wide, T>(inputs, first + i, at);
  }
  return sum;
}

template <typename Wide, typename T>
__device__ Wide sum_of_outer_run(const Inputs& inputs, Runs runs, int first, std::size_t at) {
  Wide sum = sum_of_inner_run<Wide, T>(inputs, runs, first, at);
  for (int i = 1; i < runs.outer; ++i) {
    sum += sum_of_inner_run<Wide, T>(inputs, runs, first + i * runs.inner, at);
  }
  return sum;
}

// A thread for each element. Inputs are T, the output is Out; additions are of Wide.
template <typename T, typename Wide, typename Out>
__global__ void __launch_bounds__(kMapThreads)
    sum_kernel(const __grid_constant__ Inputs inputs, Runs runs, std::size_t count, Out* output) {
  const std::size_t at = std::size_t{blockIdx.x} * kMapThreads + threadIdx.x;
  if (at >= count) {
    return;
  }
  Wide sum = sum_of_outer_run<Wide, T>(inputs, runs, 0, at);
  const int stride = runs.inner * runs.outer;
  for (int first = stride; first < inputs.num_ranks; first += stride) {
    sum += sum_of_outer_run<Wide, T>(inputs, runs, first, at);
  }
  output[at] = static_cast<Out>(sum);
}

template <typename T, typename Wide, typename Out>
void launch_sum(StreamView stream, const OrderedSum& sum) {
  Inputs inputs{};
  inputs.num_ranks = static_cast<int>(sum.inputs.size());
  SL_CHECK(inputs.num_ranks >= 2 && inputs.num_ranks <= kMostRanksOfSum,
           "a sum over " + std::to_string(inputs.num_ranks) + " ranks");
  std::copy(sum.inputs.begin(), sum.inputs.end(), inputs.of_rank);
  const LaunchShape shape{.grid = blocks_for(sum.elements, kMapThreads), .block = kMapThreads};
  const Runs runs{.inner = sum.order.runs[0], .outer = sum.order.runs[1]};
  launch(stream,
         shape,
         sum_kernel<T, Wide, Out>,
         inputs,
         runs,
         sum.elements,
         reinterpret_cast<Out*>(sum.output));
}

}  // namespace

void ordered_sum(StreamView stream, const OrderedSum& sum) {
  with_types_of(sum, [&](auto in, auto wide, auto out) {
    launch_sum<decltype(in), decltype(wide), decltype(out)>(stream, sum);
  });
}

}  // namespace slackline::cuda
