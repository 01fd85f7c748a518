#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/cuda/launch.h"
#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/loss/logit_rows.h"

// A block that has a whole row of logits, and of it in shared memory as much as leaves room for a
// second block on the multiprocessor: one reads while the other writes. The batches that are not
// kept are read again, mostly from the cache.
namespace slackline::cuda {

// How a block takes a row, and the batches that it keeps in shared memory.
struct LogitBatches {
  static constexpr unsigned kMostThreads = 512;
  static constexpr std::size_t kHalfOfShared = 112 * 1024;  // of an H100; some is for block sums

  unsigned num_threads;
  int count;
  int num_kept;

  LogitBatches(std::int64_t V, int n, bool keep) {
    const auto columns = static_cast<std::size_t>(V + n - 1);
    count =
        static_cast<int>(blocks_for(std::max<std::size_t>(columns, 1), kMostThreads * kLogitBatch));
    num_threads =
        kWarp *
        std::max(1U, blocks_for(columns, static_cast<std::size_t>(count) * kLogitBatch * kWarp));
    const std::size_t most_kept = kept_bytes() / (num_threads * (kLogitBatch + 1) * sizeof(float));
    num_kept = keep ? std::min(count, static_cast<int>(most_kept)) : 0;
  }

  // The launch of a kernel whose blocks have a row each.
  [[nodiscard]] LaunchShape block_for_each(std::int64_t num_rows) const {
    const std::size_t kept = static_cast<std::size_t>(num_kept) * num_threads * (kLogitBatch + 1);
    return {.grid = static_cast<unsigned>(num_rows),
            .block = num_threads,
            .shared_bytes = kept * sizeof(float)};
  }

  // The bytes that a block may keep on this thread's device.
  [[nodiscard]] static std::size_t kept_bytes() {
    constexpr std::size_t kForSums = 1024;
    thread_local const std::size_t bytes =
        std::min(kHalfOfShared, shared_bytes_of_block() - kForSums);
    return bytes;
  }

  // Each thread's packs lie beside its neighbours'; the largest logits are behind them all.
  template <int n>
  __device__ void keep(int index, const LogitBatch& batch) const {
    float* const kept = dynamic_shared<float>();
#pragma unroll
    for (int p = 0; p < kLogitBatch / n; ++p) {
      Floats<n> pack;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        pack[i] = batch.exponentials[p * n + i];
      }
      store<n>(kept + ((index * (kLogitBatch / n) + p) * blockDim.x + threadIdx.x) * n, pack);
    }
    kept[(num_kept * kLogitBatch + index) * blockDim.x + threadIdx.x] = batch.most;
  }

  template <int n>
  __device__ LogitBatch kept(int index) const {
    const float* const kept = dynamic_shared<float>();
    LogitBatch batch;
#pragma unroll
    for (int p = 0; p < kLogitBatch / n; ++p) {
      const Floats<n> pack =
          load<n>(kept + ((index * (kLogitBatch / n) + p) * blockDim.x + threadIdx.x) * n);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        batch.exponentials[p * n + i] = pack[i];
      }
    }
    batch.most = kept[(num_kept * kLogitBatch + index) * blockDim.x + threadIdx.x];
    return batch;
  }
};

// Reads a row. Every thread gets its statistics, thread 0 alone the target's logit. Ends behind a
// barrier: the row may be overwritten.
template <int n>
__device__ LogitStatistics read_row(const LogitRow<n>& row, const LogitBatches& batches) {
  __shared__ float scratch[LogitBatches::kMostThreads / kWarp];
  LogitStatistics own{.most = kLeastLogit, .sum = 0.0F, .target_logit = 0.0F};
  if (threadIdx.x == 0 && row.target >= 0) {
    own.target_logit = row.values[row.target];
  }
  Floats<kLogitBatch> next = load_batch<n>(row, 0);
  for (int b = 0; b < batches.count; ++b) {
    const Floats<kLogitBatch> logits = next;
    if (b + 1 < batches.count) {
      next = load_batch<n>(row, b + 1);
    }
    const LogitBatch batch = exponentiate(logits);
    if (b < batches.num_kept) {
      batches.keep<n>(b, batch);
    }
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kLogitBatch; ++i) {
      sum += batch.exponentials[i];
    }
    const float most = fmaxf(own.most, batch.most);
    own.sum = fmaf(own.sum, expf(own.most - most), __fmul_rn(sum, expf(batch.most - most)));
    own.most = most;
  }
  const float most = block_max(own.most, scratch);
  own.sum = block_sum(__fmul_rn(own.sum, expf(own.most - most)), scratch);
  own.most = most;
  __syncthreads();
  return own;
}

// write_batch() for every batch of a row that read_row() has read.
template <int n, typename T, typename Value>
__device__ void write_row(
    const LogitRow<n>& row, const LogitBatches& batches, float most, T* to, const Value& value) {
  for (int b = 0; b < batches.count; ++b) {
    const LogitBatch batch =
        b < batches.num_kept ? batches.kept<n>(b) : exponentiate(load_batch<n>(row, b));
    write_batch<n>(row, b, batch.exponentials, expf(batch.most - most), to, value);
  }
}

}  // namespace slackline::cuda
