#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/tensor/arena.h"
#include "core/tensor/tensor.h"

namespace slackline {

// An element that may be among the largest.
struct TopKCandidate {
  std::uint32_t index = 0;
  std::uint32_t bits = 0;  // as they are in the values
};

// A range of the elements, what one task handles, and its share of the result.
struct TopKRange {
  std::uint64_t first_candidate = 0;  // its candidates' place in scratch
  std::uint64_t first_kept = 0;       // its kept elements' place in the result
  std::uint32_t num_candidates = 0;
  std::uint32_t num_above = 0;  // above the cut
  std::uint32_t num_equal = 0;  // on the cut, of which
  std::uint32_t num_ties = 0;   // are kept
};

// Sizes of top_k's parts, decided by n and k alone.
//
// A sample of s elements, one of each of s equal strata, guesses the bound: its m-th largest key,
// m = e + 4 sqrt(e) + 4 where e = k s / n are expected among the k largest. Then fewer than k keys
// reach the bound once in 30 000 times at most, and about n m / s do; scratch has room for twice
// as many candidates.
struct TopKPlan {
  static constexpr std::size_t kRangeSize = 65536;  // 256 KiB: stays in cache for a second look
  static constexpr std::size_t kMaxSample = 65536;  // sorting it in part takes 1 ms
  static constexpr std::size_t kElementsPerSample = 128;  // of smaller tensors
  static constexpr std::size_t kMinElements = 8192;       // fewer are all candidates
  static constexpr std::size_t kStageSlack = 2;           // written beyond the last candidate
  static constexpr std::size_t kBins = 2048;              // of the largest digit of a key

  TopKPlan(std::size_t n, std::size_t k)
      : num_ranges((n + kRangeSize - 1) / kRangeSize), capacity(n) {
    if (n < kMinElements) {
      return;
    }
    const std::size_t size = std::min(kMaxSample, n / kElementsPerSample);
    const double expected =
        static_cast<double>(k) * static_cast<double>(size) / static_cast<double>(n);
    const double rank = std::ceil(expected + 4.0 * std::sqrt(expected) + 4.0);
    if (rank < static_cast<double>(size)) {
      sample_size = size;
      sample_rank = static_cast<std::size_t>(rank);
      capacity = std::min(n, 2 * (n / size + 1) * sample_rank);
    }
  }

  std::size_t num_ranges;
  std::size_t capacity;         // candidates that scratch has room for
  std::size_t sample_size = 0;  // 0: no sample, all elements are candidates
  std::size_t sample_rank = 0;
};

// Scratch of one call, all of it allocated before the first parallel loop.
struct TopKScratch {
  TopKScratch(Arena& arena, const TopKPlan& plan, std::size_t n, int num_threads)
      : stage_size(std::min(n, TopKPlan::kRangeSize) + TopKPlan::kStageSlack),
        sample(words(arena, plan.sample_size)),
        candidates(arena.allocate(DType::u8, row(plan.capacity * sizeof(TopKCandidate)))),
        stages(words(arena, stage_size * static_cast<std::size_t>(num_threads))),
        bins(words(arena, TopKPlan::kBins * static_cast<std::size_t>(num_threads))),
        ranges(arena.allocate(DType::u8, row(plan.num_ranges * sizeof(TopKRange)))) {}

  static Shape row(std::size_t count) { return {static_cast<std::int64_t>(count)}; }

  static Tensor words(Arena& arena, std::size_t count) {
    return arena.allocate(DType::u32, row(count));
  }

  std::size_t stage_size;  // words of one thread's stage
  Tensor sample;           // keys
  Tensor candidates;       // TopKCandidate, range by range
  Tensor stages;           // a range's candidates on their way there, thread by thread
  Tensor bins;             // counts, thread by thread
  Tensor ranges;           // TopKRange
};

}  // namespace slackline
