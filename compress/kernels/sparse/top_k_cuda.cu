#include <algorithm>
#include <utility>

#include "compress/kernels/sparse/top_k.h"
#include "compress/kernels/sparse/top_k_bins.h"
#include "compress/kernels/sparse/top_k_job.h"
#include "core/cuda/map.h"

// A key is the bits of |x|: 31 bits that order as magnitudes do.
//   1. One block looks at a sample and guesses a floor that somewhat more than k keys exceed.
//   2. One pass over the values gathers the elements above it, the candidates: a block for each
//      range of elements puts its own, in order, somewhere in the list, and notes where.
//   3. The cut, the k-th largest key, is found exactly among the candidates, digit by digit: count
//      the keys that agree so far, pick the bin in which the k-th lies.
//   4. A warp for each range counts what is above the cut and what is on it, sums over the ranges
//      before give each range its place, and the warps write what is kept.
// What 3 and 4 look at is decided on the device: where the candidates are fewer than k, or too many
// for scratch, it is the values themselves, read five times more. Where only zeros are missing, the
// cut is known to be zero, and two reads do. Small tensors and large k have no sample. Atomics add
// counts, and choose where a range's candidates lie in the list: no result depends on their order.
namespace slackline::cuda {

namespace selection {

namespace {

constexpr unsigned kWarps = kThreads / kWarp;
constexpr int kPack = kPackSize<float>;
constexpr std::size_t kPiece = std::size_t{kThreads} * kPack;  // that a block counts at once
constexpr unsigned kMostCounting = 1056;  // blocks, eight for each multiprocessor of an H100
constexpr unsigned kRowsAtOnce = 8;       // of a range, an element for each lane

__global__ void __launch_bounds__(kThreads) count_digit_kernel(Job job, int d) {
  __shared__ std::uint32_t bins[kMostBins];
  if (job.keeps_zeros()) {
    return;
  }
  const Digit digit = digit_of(d);
  const Cut cut = job.found->cut;
  const bool of_candidates = job.candidates_do();
  const float* const values = of_candidates ? job.candidates : job.values;
  const std::size_t count = of_candidates ? job.found->gathered : job.n;
  const bool aligned = reinterpret_cast<std::uintptr_t>(values) % sizeof(Pack<float, kPack>) == 0;
  if (blockIdx.x * kPiece >= count) {
    return;
  }
  for (unsigned bin = threadIdx.x; bin < kMostBins; bin += kThreads) {
    bins[bin] = 0;
  }
  __syncthreads();
  const std::size_t stride = gridDim.x * kPiece;
  for (std::size_t at = blockIdx.x * kPiece + threadIdx.x * kPack; at < count; at += stride) {
    const int rest = static_cast<int>(std::min<std::size_t>(count - at, kPack));
    const Floats<kPack> pack =
        aligned && rest == kPack ? load<kPack>(values + at) : load_part<kPack>(values + at, rest);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (i < rest) {
        count_key(bins, digit, cut, key_of(pack[i]));
      }
    }
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < digit.num_bins; bin += kThreads) {
    if (bins[bin] > 0) {
      atomicAdd(&job.bins[bin], bins[bin]);
    }
  }
}

// A single block.
__global__ void __launch_bounds__(kSingle) pick_bin_kernel(Job job, int d) {
  if (job.keeps_zeros()) {
    if (threadIdx.x == 0) {
      job.found->cut = {0, job.k - job.found->gathered};
    }
    return;
  }
  pick_bin(job.bins, digit_of(d), job.found->cut);
  for (unsigned bin = threadIdx.x; bin < kMostBins; bin += kSingle) {
    job.bins[bin] = 0;
  }
}

// visit(i, value, is_there) for element i of a part, by a warp: each lane in turn has one of a row.
template <typename Visit>
__device__ void visit_rows(const Part& part, const Visit& visit) {
  for (unsigned first = 0; first < part.count; first += kRowsAtOnce * kWarp) {
    const unsigned own = first + threadIdx.x % kWarp;
    float values[kRowsAtOnce];
#pragma unroll
    for (unsigned row = 0; row < kRowsAtOnce; ++row) {
      const unsigned i = own + row * kWarp;
      values[row] = i < part.count ? part.values[i] : 0.0F;
    }
#pragma unroll
    for (unsigned row = 0; row < kRowsAtOnce; ++row) {
      const unsigned i = own + row * kWarp;
      visit(i, values[row], i < part.count);
    }
  }
}

__device__ inline std::uint32_t range_of_warp() {
  return blockIdx.x * kWarps + threadIdx.x / kWarp;
}

__global__ void __launch_bounds__(kThreads) count_kept_kernel(Job job) {
  const std::uint32_t range = range_of_warp();
  if (range >= job.num_ranges) {
    return;
  }
  const std::uint32_t cut = job.found->cut.key;
  unsigned num_above = 0;
  unsigned num_equal = 0;
  visit_rows(job.part(range), [&](unsigned /*i*/, float value, bool is_there) {
    num_above += is_there && key_of(value) > cut ? 1U : 0U;
    num_equal += is_there && key_of(value) == cut ? 1U : 0U;
  });
  num_above = __reduce_add_sync(kAllLanes, num_above);
  num_equal = __reduce_add_sync(kAllLanes, num_equal);
  if (threadIdx.x % kWarp == 0) {
    job.ranges[range].num_above = num_above;
    job.ranges[range].num_equal = num_equal;
  }
}

// A single block: counts become those of the ranges before.
__global__ void __launch_bounds__(kSingle) sum_ranges_kernel(Job job) {
  const unsigned strip = (job.num_ranges + kSingle - 1) / kSingle;
  const unsigned begin = std::min(threadIdx.x * strip, job.num_ranges);
  const unsigned end = std::min(begin + strip, job.num_ranges);
  unsigned num_above = 0;
  unsigned num_equal = 0;
#pragma unroll 8
  for (unsigned range = begin; range < end; ++range) {
    num_above += job.ranges[range].num_above;
    num_equal += job.ranges[range].num_equal;
  }
  num_above = sum_before(num_above);
  num_equal = sum_before(num_equal);
#pragma unroll 8
  for (unsigned range = begin; range < end; ++range) {
    num_above += std::exchange(job.ranges[range].num_above, num_above);
    num_equal += std::exchange(job.ranges[range].num_equal, num_equal);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    write_kept_kernel(Job job, std::uint32_t* indices, T* kept) {
  const std::uint32_t range = range_of_warp();
  if (range >= job.num_ranges) {
    return;
  }
  const Cut cut = job.found->cut;
  const Part part = job.part(range);
  const unsigned lanes_before = (1U << threadIdx.x % kWarp) - 1;
  unsigned num_above = job.ranges[range].num_above;
  unsigned num_equal = job.ranges[range].num_equal;
  visit_rows(part, [&](unsigned i, float value, bool is_there) {
    const bool is_above = is_there && key_of(value) > cut.key;
    const bool is_equal = is_there && key_of(value) == cut.key;
    const unsigned above = __ballot_sync(kAllLanes, is_above ? 1 : 0);
    const unsigned equal = __ballot_sync(kAllLanes, is_equal ? 1 : 0);
    const unsigned ties = num_equal + static_cast<unsigned>(__popc(equal & lanes_before));
    if (is_above || (is_equal && ties < cut.ties)) {
      const std::size_t place = num_above + static_cast<unsigned>(__popc(above & lanes_before)) +
                                std::min(ties, cut.ties);
      indices[place] = part.indices == nullptr ? part.first + i : part.indices[i];
      kept[place] = T(value);
    }
    num_above += static_cast<unsigned>(__popc(above));
    num_equal += static_cast<unsigned>(__popc(equal));
  });
}

LaunchShape single_block() {
  return {.grid = 1, .block = kSingle};
}

void find_cut(StreamView stream, const Job& job) {
  const unsigned num_pieces = blocks_for(job.n, kPiece);
  const LaunchShape counting{.grid = std::min(kMostCounting, num_pieces), .block = kThreads};
  for (int digit = 0; digit < kDigits; ++digit) {
    launch(stream, counting, count_digit_kernel, job, digit);
    launch(stream, single_block(), pick_bin_kernel, job, digit);
  }
}

template <typename T>
void keep(StreamView stream, const Job& job, std::uint32_t* indices, T* kept) {
  const LaunchShape warps{.grid = blocks_for(job.num_ranges, kWarps), .block = kThreads};
  launch(stream, warps, count_kept_kernel, job);
  launch(stream, single_block(), sum_ranges_kernel, job);
  launch(stream, warps, write_kept_kernel<T>, job, indices, kept);
}

}  // namespace

}  // namespace selection

template <typename T>
void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  ArenaScope scratch(stream.workspace());
  selection::Job job(stream.workspace(), values.num_elements(), indices.num_elements());
  job.values = values.data<float>();
  selection::gather_candidates(stream, job);
  selection::find_cut(stream, job);
  selection::keep(stream, job, indices.data<std::uint32_t>(), kept.data<T>());
}

template void top_k<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void top_k<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

std::size_t top_k_workspace_bytes(std::size_t n, std::size_t k) {
  Arena arena = Arena::measuring();
  const selection::Job job(arena, n, k);
  return arena.high_water();
}

}  // namespace slackline::cuda
