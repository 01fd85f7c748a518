#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/cuda/launch.h"
#include "core/tensor/arena.h"
#include "core/tensor/stream.h"

// What top_k's kernels share (top_k_cuda.cu).
namespace slackline::cuda::selection {

inline constexpr unsigned kThreads = 256;     // of a block that takes part of the values
inline constexpr unsigned kSingle = 1024;     // of kernels of a single block
inline constexpr unsigned kRangeSize = 8192;  // elements, what a block or later a warp handles
inline constexpr unsigned kMostBins = 2048;   // of a digit

inline constexpr unsigned kSampleShift = 14;
inline constexpr unsigned kSampleSize = 1U << kSampleShift;
inline constexpr std::size_t kFewestSampled = 1U << 18U;  // fewer are read from cache anyway

// Four standard deviations more than so many random hits.
inline double upper_bound_of(double hits) {
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

  // The k largest are among the candidates, and all of these are in the list.
  __device__ bool candidates_do() const {
    return found->gathered >= k && found->gathered <= plan.capacity;
  }

  // Zeros are all that is not a candidate, and some of them are kept.
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

// Starts the kernels that guess job.found->floor and gather what exceeds it, if the plan has a
// sample; job.found->cut is then as it is before the first digit.
void gather_candidates(StreamView stream, const Job& job);

}  // namespace slackline::cuda::selection
