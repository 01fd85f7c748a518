#pragma once

#include <cstdint>

#include "compress/kernels/sparse/top_k_job.h"
#include "core/cuda/device.h"

// A key is the bits of |x|: 31 bits that order as magnitudes do. The one of a certain rank is found
// digit by digit: count the keys that agree so far by their digit, pick the bin in which it lies.
namespace slackline::cuda::selection {

__device__ inline std::uint32_t key_of(float value) {
  return __float_as_uint(value) & 0x7fffffffU;
}

struct Digit {
  unsigned shift;
  unsigned num_bins;
};

inline constexpr int kDigits = 3;

// The digits of a key, the most significant first.
__device__ constexpr Digit digit_of(int digit) {
  return digit == 0 ? Digit{20, kMostBins} : Digit{20U - 10U * static_cast<unsigned>(digit), 1024};
}

// The sum of `value` over the threads before this one, in a block of kSingle.
__device__ inline unsigned sum_before(unsigned value) {
  __shared__ unsigned of_warps[kSingle / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  unsigned sum = warp_sum_so_far(value);
  if (lane == kWarp - 1) {
    of_warps[warp] = sum;
  }
  __syncthreads();
  const unsigned of_other = lane < warp ? of_warps[lane] : 0;
  sum += __reduce_add_sync(kAllLanes, of_other);
  __syncthreads();
  return sum - value;
}

// Adds a digit to the cut by a block of kSingle: the bin of the element with cut.ties - 1 before it
// from the largest bin down.
__device__ inline void pick_bin(const std::uint32_t* bins, Digit digit, Cut& cut) {
  const unsigned ties = cut.ties;
  const unsigned from_top = 2 * threadIdx.x;  // two bins each
  const bool has_bins = from_top < digit.num_bins;
  const unsigned bin = digit.num_bins - 1 - from_top;
  const unsigned count = has_bins ? bins[bin] : 0;
  const unsigned next = has_bins ? bins[bin - 1] : 0;
  const unsigned above = sum_before(count + next);
  if (above < ties && ties - above <= count + next) {
    const bool in_next = ties - above > count;
    cut.key |= (in_next ? bin - 1 : bin) << digit.shift;
    cut.ties = ties - above - (in_next ? count : 0);
  }
  __syncthreads();
}

__device__ inline void count_key(std::uint32_t* bins, Digit digit, const Cut& cut, unsigned key) {
  const std::uint32_t above = digit.num_bins * (1U << digit.shift) - 1;  // smaller digits and it
  if ((key | above) == (cut.key | above)) {
    atomicAdd(&bins[key >> digit.shift & (digit.num_bins - 1)], 1U);
  }
}

}  // namespace slackline::cuda::selection
