#include <vector>

#include "core/cuda/cuda_memory.h"
#include "core/cuda/map.h"
#include "core/kernels/sum_of_squares.h"

// Floats widen to double before they are squared: no overflow, and the rate of doubles still
// outruns memory. The values are read once; which thread adds what, and which block, follows from
// their number alone.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int kPack = kPackSize<float>;
constexpr int kPacksAtOnce = 4;  // that a thread has on the way
constexpr std::size_t kElementsAtOnce = std::size_t{kThreads} * kPack * kPacksAtOnce;  // of a block
constexpr std::size_t kMostBlocks = 528;  // four for each multiprocessor of an H100

unsigned num_blocks(std::size_t count) {
  return static_cast<unsigned>(
      std::min(kMostBlocks, (count + kElementsAtOnce - 1) / kElementsAtOnce));
}

__device__ double block_total(double value) {
  __shared__ double sums[kThreads / kWarp];
  for (unsigned lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, static_cast<int>(lanes));
  }
  if (threadIdx.x % kWarp == 0) {
    sums[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return total;
}

// sums[b] is of every gridDim.x-th piece of kElementsAtOnce values from piece b on.
template <bool aligned>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const float* values, std::size_t count, double* sums) {
  double own[kPack] = {};
  for (std::size_t piece = blockIdx.x * kElementsAtOnce; piece < count;
       piece += gridDim.x * kElementsAtOnce) {
    Floats<kPack> packs[kPacksAtOnce];
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
      const std::size_t at = piece + (p * kThreads + threadIdx.x) * std::size_t{kPack};
      if (aligned && at + kPack <= count) {
        packs[p] = load<kPack>(values + at);
      } else {
        const std::size_t rest = at < count ? count - at : 0;
        packs[p] =
            load_part<kPack>(values + at, static_cast<int>(std::min<std::size_t>(rest, kPack)));
      }
    }
#pragma unroll
    for (int p = 0; p < kPacksAtOnce; ++p) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const double value = packs[p][i];
        own[i] = fma(value, value, own[i]);
      }
    }
  }
  const double total = block_total((own[0] + own[1]) + (own[2] + own[3]));
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = total;
  }
}

}  // namespace

double sum_of_squares(StreamView stream, std::span<const float> values) {
  ArenaScope scratch(stream.workspace());
  const unsigned blocks = num_blocks(values.size());
  const Tensor sums = scratch.allocate(DType::f64, {blocks});
  const LaunchShape shape{.grid = blocks, .block = kThreads};
  const auto kernel = are_aligned(values.data()) ? sum_kernel<true> : sum_kernel<false>;
  launch(stream, shape, kernel, values.data(), values.size(), sums.data<double>());
  std::vector<double> of_blocks(blocks);
  copy(stream.cuda().handle(), of_blocks.data(), sums.raw(), sums.bytes());
  stream.synchronize();
  double total = 0.0;
  for (const double sum : of_blocks) {
    total += sum;
  }
  return total;
}

std::size_t sum_of_squares_workspace_bytes(std::size_t num_elements) {
  return Arena::aligned_bytes(DType::f64, {num_blocks(num_elements)});
}

}  // namespace slackline::cuda
