#pragma once

#include <cmath>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/kernels/attention/attention.h"

// What the blocks of attention kernels on the CUDA device work on: one head of one sequence each.
namespace slackline::cuda {

// What all kernels know. T rows of a head, D columns each.
struct AttentionJob {
  std::int64_t B = 0;
  int T = 0;
  int H = 0;
  int D = 0;
  std::int64_t row = 0;  // elements from one position to the next, in qkv
  float scale = 1.0F;
  DropoutKey dropout{};
  std::uint32_t threshold = 0;
  float kept = 1.0F;  // 1 / (1 - probability)
  std::int64_t first_head = 0;
};

// Which tile of so many rows a block makes, and of which head: blocks of a head stand side by side.
template <int tile>
struct AttentionBlock {
  unsigned num_tiles = 0;  // of a head
  int index = 0;
  unsigned head = 0;  // over all sequences

  __device__ explicit AttentionBlock(const AttentionJob& job)
      : num_tiles(static_cast<unsigned>((job.T + tile - 1) / tile)),
        index(static_cast<int>(blockIdx.x % num_tiles)),
        head(blockIdx.x / num_tiles) {}

  // From the last tile to the first.
  __device__ int index_from_end() const { return static_cast<int>(num_tiles) - 1 - index; }
};

// One head of one sequence, of which a block makes a part.
struct AttentionHead {
  int h = 0;
  std::int64_t b = 0;

  __device__ AttentionHead(const AttentionJob& job, unsigned number)
      : h(static_cast<int>(number % static_cast<unsigned>(job.H))),
        b(number / static_cast<unsigned>(job.H)) {}

  // Part 0, 1 or 2 of (B, T, 3 H D): queries, keys or values.
  template <typename T>
  __device__ T* part(const AttentionJob& job, T* qkv, int which) const {
    return qkv + b * job.T * job.row + (static_cast<std::int64_t>(which) * job.H + h) * job.D;
  }

  // In (B, T, H D).
  template <typename T>
  __device__ T* of_output(const AttentionJob& job, T* output) const {
    return output + (b * job.T * job.H + h) * job.D;
  }

  // In (B, H, T).
  template <typename T>
  __device__ T* statistics(const AttentionJob& job, T* all) const {
    return all + (b * job.H + h) * job.T;
  }
};

// The factors by which dropout multiplies probabilities; words are drawn four elements at a time.
class AttentionDropout {
 public:
  __device__ AttentionDropout(const AttentionJob& job, const AttentionHead& head)
      : job_(&job),
        sample_(job.dropout.first_sample + static_cast<std::uint64_t>(head.b)),
        head_(static_cast<std::uint64_t>(job.first_head + head.h)) {}

  __device__ float of(int query, int key) {
    if (job_->threshold == 0) {
      return 1.0F;
    }
    const auto T = static_cast<std::uint64_t>(job_->T);
    const std::uint64_t element =
        (head_ * T + static_cast<std::uint64_t>(query)) * T + static_cast<std::uint64_t>(key);
    if (element / kWords != block_) {
      block_ = element / kWords;
      words_ = dropout_words(job_->dropout, sample_, block_);
    }
    return words_[element % kWords] < job_->threshold ? 0.0F : job_->kept;
  }

 private:
  static constexpr std::uint64_t kWords = 4;

  const AttentionJob* job_;
  std::uint64_t sample_;
  std::uint64_t head_;
  std::uint64_t block_ = ~std::uint64_t{0};
  PhiloxBlock words_{};
};

inline AttentionJob job_of(const Tensor& qkv,
                           int num_heads,
                           const DropoutKey& dropout,
                           std::int64_t first_head) {
  const std::int64_t D = qkv.dim(2) / (std::int64_t{3} * num_heads);
  return {
      .B = qkv.dim(0),
      .T = static_cast<int>(qkv.dim(1)),
      .H = num_heads,
      .D = static_cast<int>(D),
      .row = qkv.dim(2),
      .scale = 1.0F / std::sqrt(static_cast<float>(D)),
      .dropout = dropout,
      .threshold = dropout.probability > 0.0F ? dropout_threshold(dropout.probability) : 0,
      .kept = 1.0F / (1.0F - dropout.probability),
      .first_head = first_head,
  };
}

}  // namespace slackline::cuda
