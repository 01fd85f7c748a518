#include <cmath>

#include "core/cuda/map.h"
#include "core/kernels/top_k.h"

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

namespace {

constexpr std::uint32_t kKeyMask = 0x7fffffff;

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr int kPack = kPackSize<float>;
constexpr int kPacks = 8;  // that a thread has on the way
constexpr unsigned kWarpElements = kWarp * kPack * kPacks;
constexpr unsigned kRangeSize = kWarps * kWarpElements;
constexpr int kRowsAtOnce = 8;               // of a range, an element for each lane
constexpr std::size_t kMostCounting = 1056;  // blocks, eight for each multiprocessor of an H100

constexpr unsigned kSingle = 1024;  // threads of kernels of a single block
constexpr unsigned kSampleShift = 14;
constexpr unsigned kSampleSize = 1U << kSampleShift;
constexpr std::size_t kFewestSampled = 1U << 18U;   // smaller tensors are read from cache anyway
constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;  // of 2^32

struct Digit {
  unsigned shift;
  unsigned num_bins;
};

constexpr int kDigits = 3;
constexpr unsigned kMostBins = 2048;

// Of a key, the largest first.
__device__ constexpr Digit digit_of(int digit) {
  return digit == 0 ? Digit{20, kMostBins} : Digit{20U - 10U * static_cast<unsigned>(digit), 1024};
}

// Four standard deviations more than so many random hits.
double upper_bound_of(double hits) {
  return std::ceil(hits + 4.0 * std::sqrt(hits) + 4.0);
}

// How many candidates scratch has room for, decided by n and k alone.
struct Plan {
  Plan(std::size_t n, std::size_t k) {
    const double stratum = static_cast<double>(n) / kSampleSize;
    const double rank = upper_bound_of(static_cast<double>(k) / stratum);
    const double most = upper_bound_of(rank) * (stratum + 1.0);
    if (n >= kFewestSampled && most <= static_cast<double>(n) / 2) {
      sample_rank = static_cast<unsigned>(rank);
      capacity = static_cast<std::size_t>(most);
    }
  }

  unsigned sample_rank = 0;
  std::size_t capacity = 0;  // 0: no sample
};

// Elements whose keys exceed `key` are kept, and the first `ties` of those that equal it. While the
// cut is being found: the digits of it so far, and how many are kept of keys that agree with them.
struct Cut {
  std::uint32_t key;
  std::uint32_t ties;
};

struct Found {
  std::uint32_t floor;     // of the candidates
  std::uint32_t gathered;  // how many there are
  Cut cut;
};

struct Range {
  std::uint32_t first_candidate;
  std::uint32_t num_candidates;
  std::uint32_t num_above;  // the cut; in the end those of the ranges before
  std::uint32_t num_equal;  // likewise
};

// What a warp of the last kernels looks at.
struct Part {
  const float* values;
  const std::uint32_t* indices;  // null: they count up from `first`
  std::uint32_t first;
  std::uint32_t count;
};

struct Job {
  Job(Arena& arena, std::size_t num_values, std::size_t num_kept)
      : n(num_values), k(static_cast<std::uint32_t>(num_kept)), plan(num_values, num_kept) {
    num_ranges = blocks_for(n, kRangeSize);
    found = reinterpret_cast<Found*>(words(arena, sizeof(Found) / sizeof(std::uint32_t)));
    bins = words(arena, kMostBins);
    ranges = reinterpret_cast<Range*>(
        words(arena, num_ranges * (sizeof(Range) / sizeof(std::uint32_t))));
    candidates = reinterpret_cast<float*>(words(arena, plan.capacity));
    indices = words(arena, plan.capacity);
  }

  static std::uint32_t* words(Arena& arena, std::size_t count) {
    return arena.allocate(DType::u32, {static_cast<std::int64_t>(count)}).data<std::uint32_t>();
  }

  __device__ bool candidates_do() const {
    return found->gathered >= k && found->gathered <= plan.capacity;
  }

  // All that exceed zero are too few.
  __device__ bool keeps_zeros() const {
    return plan.capacity > 0 && found->floor == 0 && found->gathered < k;
  }

  __device__ Part part(std::uint32_t range) const {
    if (candidates_do()) {
      const std::uint32_t first = ranges[range].first_candidate;
      return {candidates + first, indices + first, 0, ranges[range].num_candidates};
    }
    const std::size_t first = std::size_t{range} * kRangeSize;
    return {values + first,
            nullptr,
            static_cast<std::uint32_t>(first),
            static_cast<std::uint32_t>(std::min<std::size_t>(kRangeSize, n - first))};
  }

  const float* values = nullptr;
  std::size_t n;
  std::uint32_t k;
  Plan plan;
  std::uint32_t num_ranges;
  Found* found;
  std::uint32_t* bins;  // zeros, except from counting a digit to picking its bin
  Range* ranges;
  float* candidates;
  std::uint32_t* indices;  // of the candidates
};

__device__ inline std::uint32_t key_of(float value) {
  return __float_as_uint(value) & kKeyMask;
}

// Of the threads before this one in a block of kSingle.
__device__ inline unsigned sum_before(unsigned value) {
  __shared__ unsigned of_warps[kSingle / kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  unsigned sum = value;
  for (unsigned lanes = 1; lanes < kWarp; lanes *= 2) {
    const unsigned before = __shfl_up_sync(kAllLanes, sum, lanes);
    sum += lane >= lanes ? before : 0;
  }
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
      unsigned sum = own[half];
      for (unsigned lanes = 1; lanes < kWarp; lanes *= 2) {
        const unsigned others = __shfl_up_sync(kAllLanes, sum, lanes);
        sum += threadIdx.x % kWarp >= lanes ? others : 0;
      }
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

template <bool aligned>
__global__ void __launch_bounds__(kThreads) gather_kernel(Job job) {
  const std::uint32_t floor = job.found->floor;
  const std::size_t first = std::size_t{blockIdx.x} * kRangeSize +
                            threadIdx.x / kWarp * kWarpElements + threadIdx.x % kWarp * kPack;
  Floats<kPack> packs[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const std::size_t at = first + p * kWarp * kPack;
    const std::size_t rest = at < job.n ? job.n - at : 0;
    packs[p] = aligned && rest >= kPack
                   ? load<kPack>(job.values + at)
                   : load_part<kPack>(job.values + at,
                                      static_cast<int>(std::min<std::size_t>(rest, kPack)));
  }
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
        job.indices[place++] = static_cast<std::uint32_t>(first + p * kWarp * kPack + i);
      }
    }
    row += places.of(p);
  }
}

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
  for (unsigned bin = threadIdx.x; bin < kMostBins; bin += kThreads) {
    bins[bin] = 0;
  }
  __syncthreads();
  constexpr std::size_t kPiece = std::size_t{kThreads} * kPack;
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
  for (unsigned first = threadIdx.x % kWarp; first - threadIdx.x % kWarp < part.count;
       first += kRowsAtOnce * kWarp) {
    float values[kRowsAtOnce];
#pragma unroll
    for (unsigned row = 0; row < kRowsAtOnce; ++row) {
      const unsigned i = first + row * kWarp;
      values[row] = i < part.count ? part.values[i] : 0.0F;
    }
#pragma unroll
    for (unsigned row = 0; row < kRowsAtOnce; ++row) {
      const unsigned i = first + row * kWarp;
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

}  // namespace

template <typename T>
void top_k(StreamView stream, const Tensor& values, const Tensor& indices, const Tensor& kept) {
  ArenaScope scratch(stream.workspace());
  Job job(stream.workspace(), values.num_elements(), indices.num_elements());
  job.values = values.data<float>();
  const LaunchShape single{.grid = 1, .block = kSingle};
  const LaunchShape warps{.grid = blocks_for(job.num_ranges, kWarps), .block = kThreads};
  const LaunchShape counting{
      .grid = static_cast<unsigned>(std::min<std::size_t>(kMostCounting, job.num_ranges)),
      .block = kThreads};
  launch(stream, single, begin_kernel, job);
  if (job.plan.capacity > 0) {
    const LaunchShape blocks{.grid = job.num_ranges, .block = kThreads};
    const auto gather = are_aligned(job.values) ? gather_kernel<true> : gather_kernel<false>;
    launch(stream, blocks, gather, job);
  }
  for (int digit = 0; digit < kDigits; ++digit) {
    launch(stream, counting, count_digit_kernel, job, digit);
    launch(stream, single, pick_bin_kernel, job, digit);
  }
  launch(stream, warps, count_kept_kernel, job);
  launch(stream, single, sum_ranges_kernel, job);
  launch(stream, warps, write_kept_kernel<T>, job, indices.data<std::uint32_t>(), kept.data<T>());
}

template void top_k<float>(StreamView, const Tensor&, const Tensor&, const Tensor&);
template void top_k<BFloat16>(StreamView, const Tensor&, const Tensor&, const Tensor&);

std::size_t top_k_workspace_bytes(std::size_t n, std::size_t k) {
  Arena arena = Arena::measuring();
  const Job job(arena, n, k);
  return arena.high_water();
}

}  // namespace slackline::cuda
