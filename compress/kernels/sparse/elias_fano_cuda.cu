#include <algorithm>

#include "compress/kernels/sparse/elias_fano.h"
#include "core/cuda/device.h"
#include "core/cuda/launch.h"
#include "core/rng.h"
#include "core/tensor/arena.h"

// Encoding: a thread makes one word, whose first index it finds by halving (upper parts) or knows
// (lower parts). Decoding: a block for each range of words, a thread for a few neighbouring words;
// a block adds up the counts of the blocks before it itself, a read of one word for every thousand
// of the code.
namespace slackline::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kBits = EliasFano::kWordBits;
constexpr unsigned kOwnWords = kUpperWordsPerRange / kThreads;
static_assert(kOwnWords * kThreads == kUpperWordsPerRange);

// An EliasFano in the words that kernels reckon in.
struct Code {
  std::uint32_t k;
  unsigned low_bits;
  std::size_t upper_words;
  std::size_t lower_words;
};

Code code_of(const EliasFano& code) {
  return {.k = low_word(code.k),
          .low_bits = code.low_bits(),
          .upper_words = code.upper_words(),
          .lower_words = code.lower_words()};
}

__device__ inline std::uint64_t place_of(const Code& code,
                                         const std::uint32_t* indices,
                                         std::uint32_t j) {
  return std::uint64_t{indices[j] >> code.low_bits} + j;
}

__global__ void __launch_bounds__(kThreads)
    write_upper_kernel(Code code, const std::uint32_t* indices, std::uint32_t* upper) {
  const std::size_t at = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= code.upper_words) {
    return;
  }
  const std::uint64_t begin = std::uint64_t{at} * kBits;
  std::uint32_t first = 0;
  for (std::uint32_t count = code.k; count > 0;) {
    const std::uint32_t half = count / 2;
    const bool is_before = place_of(code, indices, first + half) < begin;
    first = is_before ? first + half + 1 : first;
    count = is_before ? count - half - 1 : half;
  }
  std::uint32_t word = 0;
  for (std::uint32_t j = first; j < code.k; ++j) {
    const std::uint64_t place = place_of(code, indices, j) - begin;
    if (place >= kBits) {
      break;
    }
    word |= 1U << static_cast<unsigned>(place);
  }
  upper[at] = word;
}

__global__ void __launch_bounds__(kThreads)
    write_lower_kernel(Code code, const std::uint32_t* indices, std::uint32_t* lower) {
  const std::size_t at = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= code.lower_words) {
    return;
  }
  const std::uint64_t begin = std::uint64_t{at} * kBits;
  const std::uint32_t mask = (1U << code.low_bits) - 1U;
  std::uint32_t word = 0;
  for (std::uint64_t j = begin / code.low_bits; j < code.k; ++j) {
    const std::uint64_t bit = j * code.low_bits;
    if (bit >= begin + kBits) {
      break;
    }
    const std::uint32_t low = indices[j] & mask;
    word |= bit >= begin ? low << static_cast<unsigned>(bit - begin)
                         : low >> static_cast<unsigned>(begin - bit);
  }
  lower[at] = word;
}

// The ones in a thread's words, and in those of the threads of the block before it.
struct Ones {
  unsigned own;
  unsigned before;
  unsigned of_block;
};

__device__ inline Ones ones_of_block(const std::uint32_t (&words)[kOwnWords]) {
  __shared__ unsigned of_warp[kWarps];
  unsigned own = 0;
#pragma unroll
  for (unsigned i = 0; i < kOwnWords; ++i) {
    own += static_cast<unsigned>(__popc(words[i]));
  }
  const unsigned sum = warp_sum_so_far(own);
  if (threadIdx.x % kWarp == kWarp - 1) {
    of_warp[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  Ones ones{own, sum - own, 0};
  for (unsigned warp = 0; warp < kWarps; ++warp) {
    ones.before += warp < threadIdx.x / kWarp ? of_warp[warp] : 0;
    ones.of_block += of_warp[warp];
  }
  return ones;
}

__device__ inline void load_words(const Code& code,
                                  const std::uint32_t* upper,
                                  std::uint32_t (&words)[kOwnWords]) {
  const std::size_t first = std::size_t{blockIdx.x} * kUpperWordsPerRange + threadIdx.x * kOwnWords;
#pragma unroll
  for (unsigned i = 0; i < kOwnWords; ++i) {
    words[i] = first + i < code.upper_words ? upper[first + i] : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_ones_kernel(Code code, const std::uint32_t* upper, std::uint32_t* ones_of_ranges) {
  std::uint32_t words[kOwnWords];
  load_words(code, upper, words);
  const Ones ones = ones_of_block(words);
  if (threadIdx.x == 0) {
    ones_of_ranges[blockIdx.x] = ones.of_block;
  }
}

// The ones of the first ranges; all threads of a block call it.
__device__ inline std::uint64_t sum_of_ranges(const std::uint32_t* ones_of_ranges,
                                              std::size_t num_ranges) {
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) {
    sum = 0;
  }
  __syncthreads();
  unsigned long long own = 0;
  for (std::size_t range = threadIdx.x; range < num_ranges; range += kThreads) {
    own += ones_of_ranges[range];
  }
  if (own > 0) {
    atomicAdd(&sum, own);
  }
  __syncthreads();
  return sum;
}

__device__ inline std::uint32_t low_part(const Code& code,
                                         const std::uint32_t* lower,
                                         std::uint64_t j) {
  const std::uint64_t bit = j * code.low_bits;
  const std::uint64_t word = bit / kBits;
  if (word >= code.lower_words) {
    return 0;
  }
  const std::uint64_t next = word + 1 < code.lower_words ? lower[word + 1] : 0;
  const std::uint64_t two = next << kBits | lower[word];
  return low_word(two >> bit % kBits) & ((1U << code.low_bits) - 1U);
}

// Beyond the last index of a damaged code: no index, so that what reads them passes them over.
__device__ inline void fill_rest(const Code& code, std::uint64_t total, std::uint32_t* indices) {
  for (std::uint64_t j = total + threadIdx.x; j < code.k; j += kThreads) {
    indices[j] = ~std::uint32_t{0};
  }
}

__global__ void __launch_bounds__(kThreads) read_indices_kernel(Code code,
                                                                const std::uint32_t* words,
                                                                const std::uint32_t* ones_of_ranges,
                                                                std::uint32_t* indices) {
  std::uint32_t own[kOwnWords];
  load_words(code, words, own);
  const Ones ones = ones_of_block(own);
  std::uint64_t j = sum_of_ranges(ones_of_ranges, blockIdx.x) + ones.before;
  std::uint64_t bit =
      (std::uint64_t{blockIdx.x} * kUpperWordsPerRange + threadIdx.x * kOwnWords) * kBits;
  const std::uint32_t* const lower = words + code.upper_words;
#pragma unroll
  for (unsigned i = 0; i < kOwnWords; ++i, bit += kBits) {
    for (std::uint32_t word = own[i]; word != 0 && j < code.k; word &= word - 1, ++j) {
      const std::uint64_t place = bit + static_cast<unsigned>(__ffs(static_cast<int>(word)) - 1);
      const std::uint64_t index = ((place - j) << code.low_bits) + low_part(code, lower, j);
      indices[j] = low_word(std::min<std::uint64_t>(index, ~std::uint32_t{0}));
    }
  }
}

// A single block, after all counts.
__global__ void __launch_bounds__(kThreads) check_count_kernel(Code code,
                                                               const std::uint32_t* ones_of_ranges,
                                                               FaultNote note,
                                                               CudaStream::Faults* faults,
                                                               std::uint32_t* indices) {
  const std::size_t num_ranges = (code.upper_words + kUpperWordsPerRange - 1) / kUpperWordsPerRange;
  const std::uint64_t total = sum_of_ranges(ones_of_ranges, num_ranges);
  fill_rest(code, total, indices);
  if (threadIdx.x == 0 && total != code.k) {
    tell_fault(faults->first, note.raise, {low_word(total), code.k, note.tag});
  }
}

LaunchShape one_thread_each(std::size_t count) {
  return {.grid = blocks_for(count, kThreads), .block = kThreads};
}

}  // namespace

void elias_fano_encode(StreamView stream,
                       const Tensor& indices,
                       const EliasFano& code,
                       const Tensor& words) {
  const auto* from = indices.data<std::uint32_t>();
  auto* const upper = words.data<std::uint32_t>();
  launch(
      stream, one_thread_each(code.upper_words()), write_upper_kernel, code_of(code), from, upper);
  launch(stream,
         one_thread_each(code.lower_words()),
         write_lower_kernel,
         code_of(code),
         from,
         upper + code.upper_words());
}

void elias_fano_decode(StreamView stream,
                       const Tensor& words,
                       const EliasFano& code,
                       const FaultNote& note,
                       const Tensor& indices) {
  ArenaScope scope(stream.workspace());
  auto* const ones = scope.allocate(DType::u32, {static_cast<std::int64_t>(num_upper_ranges(code))})
                         .data<std::uint32_t>();
  const auto* from = words.data<std::uint32_t>();
  auto* const to = indices.data<std::uint32_t>();
  const LaunchShape ranges{.grid = blocks_for(code.upper_words(), kUpperWordsPerRange),
                           .block = kThreads};
  launch(stream, ranges, count_ones_kernel, code_of(code), from, ones);
  launch(stream,
         LaunchShape{.grid = 1, .block = kThreads},
         check_count_kernel,
         code_of(code),
         ones,
         note,
         stream.cuda().faults(),
         to);
  launch(stream, ranges, read_indices_kernel, code_of(code), from, ones, to);
}

}  // namespace slackline::cuda
