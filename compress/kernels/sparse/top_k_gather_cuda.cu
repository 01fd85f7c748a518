#include <algorithm>

#include "compress/kernels/sparse/top_k_bins.h"
#include "compress/kernels/sparse/top_k_job.h"
#include "core/cuda/map.h"

// The values are read once: a block has its range of them in registers when it takes a place in the
// list. Three blocks to a multiprocessor have 96 KiB on the way, twice what hides the latency.
namespace slackline::cuda::selection {

namespace {

constexpr unsigned kWarps = kThreads / kWarp;
constexpr int kPack = kPackSize<float>;
constexpr int kPacks = 8;  // that a thread has on the way
constexpr unsigned kWarpElements = kWarp * kPack * kPacks;
static_assert(kRangeSize == kWarps * kWarpElements);

constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;  // of 2^32

// The key of one element of each of equal strata; where in the stratum changes from one to the
// next, so that rows of any length are met in all their columns.
__device__ inline std::uint32_t sampled_key(const Job& job, unsigned i) {
  const std::size_t first = i * job.n >> kSampleShift;
  const std::size_t width = ((i + 1) * job.n >> kSampleShift) - first;
  return key_of(job.values[first + (std::uint64_t{i * kGoldenRatio} * width >> 32U)]);
}

// A single block: the sample's key of the plan's rank is in `cut` when all are done.
__device__ inline void rank_sample(const Job& job, Cut& cut) {
  __shared__ std::uint32_t bins[kMostBins];
  constexpr unsigned kOwn = kSampleSize / kSingle;
  std::uint32_t keys[kOwn];
#pragma unroll
  for (unsigned i = 0; i < kOwn; ++i) {
    keys[i] = sampled_key(job, i * kSingle + threadIdx.x);
  }
  if (threadIdx.x == 0) {
    cut = {0, job.plan.sample_rank};
  }
  for (int d = 0; d < kDigits; ++d) {
    for (unsigned bin = threadIdx.x; bin < kMostBins; bin += kSingle) {
      bins[bin] = 0;
    }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kOwn; ++i) {
      count_key(bins, digit_of(d), cut, keys[i]);
    }
    __syncthreads();
    pick_bin(bins, digit_of(d), cut);
  }
}

// A single block. Elements on the sample's bound are candidates as well, unless it is zero.
__global__ void __launch_bounds__(kSingle) begin_kernel(Job job) {
  __shared__ Cut bound;
  const bool has_sample = job.plan.capacity > 0;
  if (has_sample) {
    rank_sample(job, bound);
  }
  for (unsigned bin = threadIdx.x; bin < kMostBins; bin += kSingle) {
    job.bins[bin] = 0;
  }
  if (threadIdx.x == 0) {
    const std::uint32_t floor = has_sample && bound.key > 0 ? bound.key - 1 : 0;
    *job.found = {floor, 0, {0, job.k}};
  }
}

// A thread's candidates in its 8 packs: bit 4 p + i is element i of pack p. Packs of a number are a
// row of the warp, and rows follow one another in memory.
struct Places {
  // Bytes count up to 128 candidates of a row: of rows 0, 2, 4, 6 and of rows 1, 3, 5, 7.
  __device__ explicit Places(unsigned bits) {
    static_assert(kPack == 4 && kPacks == 8);
    const unsigned pairs = bits - (bits >> 1U & 0x55555555U);
    const unsigned nibbles = (pairs & 0x33333333U) + (pairs >> 2U & 0x33333333U);
    const unsigned own[2] = {nibbles & 0x0f0f0f0fU, nibbles >> 4U & 0x0f0f0f0fU};
    for (int half = 0; half < 2; ++half) {
      const unsigned sum = warp_sum_so_far(own[half]);
      before[half] = sum - own[half];
      of_row[half] = __shfl_sync(kAllLanes, sum, kWarp - 1);
    }
  }

  __device__ unsigned before_in(unsigned row) const {
    return before[row % 2] >> (row / 2 * 8) & 0xffU;
  }

  __device__ unsigned of(unsigned row) const { return of_row[row % 2] >> (row / 2 * 8) & 0xffU; }

  unsigned before[2];  // of lanes before this one
  unsigned of_row[2];
};

// Takes a place in the list for the candidates of a block, and returns that of the warp's; ~0 where
// the list is full.
__device__ inline std::uint32_t take_places(const Job& job, unsigned count_of_warp) {
  __shared__ unsigned counts[kWarps];
  __shared__ unsigned first_of_block;
  const unsigned warp = threadIdx.x / kWarp;
  if (threadIdx.x % kWarp == 0) {
    counts[warp] = count_of_warp;
  }
  __syncthreads();
  unsigned before = 0;
  unsigned count = 0;
#pragma unroll
  for (unsigned other = 0; other < kWarps; ++other) {
    before += other < warp ? counts[other] : 0;
    count += counts[other];
  }
  if (threadIdx.x == 0) {
    first_of_block = count == 0 ? 0 : atomicAdd(&job.found->gathered, count);
    job.ranges[blockIdx.x].first_candidate = first_of_block;
    job.ranges[blockIdx.x].num_candidates = count;
  }
  __syncthreads();
  const bool fits = std::size_t{first_of_block} + count <= job.plan.capacity;
  return fits ? first_of_block + before : ~0U;
}

// Zeros where there are no elements: no candidates.
template <bool aligned>
__device__ void load_packs(const Job& job, std::size_t first, Floats<kPack> (&packs)[kPacks]) {
  const bool is_whole = (std::size_t{blockIdx.x} + 1) * kRangeSize <= job.n;
  if (is_whole) {  // nothing is between the loads
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const float* const from = job.values + first + p * kWarp * kPack;
      packs[p] = aligned ? load<kPack>(from) : load_part<kPack>(from, kPack);
    }
    return;
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::size_t at = first + p * kWarp * kPack;
    const std::size_t rest = at < job.n ? std::min<std::size_t>(job.n - at, kPack) : 0;
    packs[p] = load_part<kPack>(job.values + at, static_cast<int>(rest));
  }
}

template <bool aligned>
__global__ void __launch_bounds__(kThreads) gather_kernel(Job job) {
  const std::uint32_t floor = job.found->floor;
  const std::size_t first = std::size_t{blockIdx.x} * kRangeSize +
                            threadIdx.x / kWarp * kWarpElements + threadIdx.x % kWarp * kPack;
  Floats<kPack> packs[kPacks];
  load_packs<aligned>(job, first, packs);
  unsigned bits = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      bits |= key_of(packs[p][i]) > floor ? 1U << static_cast<unsigned>(p * kPack + i) : 0U;
    }
  }
  const Places places(bits);
  const auto count = static_cast<unsigned>(__popc(bits));
  std::uint32_t row = take_places(job, __reduce_add_sync(kAllLanes, count));
  if (row == ~0U) {
    return;
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    std::uint32_t place = row + places.before_in(p);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if ((bits >> static_cast<unsigned>(p * kPack + i) & 1U) != 0) {
        job.candidates[place] = packs[p][i];
        job.indices[place++] = static_cast<std::uint32_t>(first) + p * kWarp * kPack + i;
      }
    }
    row += places.of(p);
  }
}

}  // namespace

void gather_candidates(StreamView stream, const Job& job) {
  launch(stream, LaunchShape{.grid = 1, .block = kSingle}, begin_kernel, job);
  if (job.plan.capacity > 0) {
    const LaunchShape ranges{.grid = job.num_ranges, .block = kThreads};
    const auto kernel = are_aligned(job.values) ? gather_kernel<true> : gather_kernel<false>;
    launch(stream, ranges, kernel, job);
  }
}

}  // namespace slackline::cuda::selection
