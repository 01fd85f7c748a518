#pragma once

#include <cmath>
#include <cstdint>

#include "core/cuda/device.h"
#include "core/kernels/loss/cross_entropy.h"

// The loss and the gradient of a row of logits, from what each rank knows of its columns. Roundings
// are spelled out here and in kept_logits.h: every kernel gets the same bits.
namespace slackline::cuda {

// What one rank knows of a row of logits.
struct LogitStatistics {
  float most;
  float sum;
  float target_logit;
};

static_assert(sizeof(LogitStatistics) == kSoftmaxStatistics * sizeof(float));

// Returns a row's statistics over all ranks. all[r * N] is rank r's.
__device__ inline LogitStatistics combine(const LogitStatistics* all,
                                          std::int64_t N,
                                          std::int64_t num_ranks) {
  LogitStatistics whole = all[0];
  for (std::int64_t r = 1; r < num_ranks; ++r) {
    whole.most = fmaxf(whole.most, all[r * N].most);
    whole.target_logit += all[r * N].target_logit;
  }
  whole.sum = 0.0F;
  for (std::int64_t r = 0; r < num_ranks; ++r) {
    whole.sum = fmaf(all[r * N].sum, expf(all[r * N].most - whole.most), whole.sum);
  }
  return whole;
}

__device__ inline float loss_of(const LogitStatistics& whole) {
  return logf(whole.sum) + (whole.most - whole.target_logit);
}

// Turns exponentials into scale * (probability - is_target).
struct LogitGradient {
  float factor;
  float scale;

  __device__ float operator()(float exponential, bool is_target) const {
    return fmaf(exponential, factor, is_target ? -scale : -0.0F);
  }
};

// For exponentials that are relative to own_most.
__device__ inline LogitGradient gradient_of(const LogitStatistics& whole,
                                            float own_most,
                                            float scale) {
  return {.factor = __fmul_rn(scale, expf(own_most - whole.most)) / whole.sum, .scale = scale};
}

}  // namespace slackline::cuda
