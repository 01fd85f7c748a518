#pragma once

#include <cstdint>

#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// loss = -log softmax(logits)[target], where the columns of the softmax may be spread over ranks:
// two ops, between which the ranks exchange three numbers a row. With rank r's largest logit m_r,
// its sum s_r of exp(logit - m_r), and the target's logit z, from whichever rank has it,
//   m = max m_r,  s = sum of s_r exp(m_r - m) in rank order,  loss = log s + (m - z),
//   d_logit = scale ([exp(logit - m_r)] exp(m_r - m) / s - [is the target]),
// where the bracketed exponential stands in the logit's place after the first op: neither op reads
// the logits more often than a softmax in one piece would. Every rank computes every loss, with
// the same bits.
//
// Rows of logits, exponentials and gradients may lie apart: `row` elements from one to the next, in
// all of a call alike; 0: side by side. What is between them is neither read nor written.

// A rank knows these three numbers of a row of logits.
struct LogitStatistics {
  float most;          // m_r
  float sum;           // s_r
  float target_logit;  // z, or 0 where it is not here
};

inline constexpr std::int64_t kSoftmaxStatistics = sizeof(LogitStatistics) / sizeof(float);

// The first op. logits (N, V) f32 are replaced by exponentials. targets (N) i32 are tokens; column
// 0 stands for first_token. statistics (N, 3) f32 is written.
struct SoftmaxStatistics {
  Tensor logits{};
  Tensor targets{};
  Tensor statistics{};
  std::int64_t first_token = 0;
  std::int64_t row = 0;
};

// The second. statistics (R, N, 3) f32 of all ranks, this one's at `rank`; losses (N) f32 is
// written, and with d_logits given, (N, V) f32 or bf16, the gradient of gradient_scale *
// sum(losses). d_logits may be the exponentials themselves.
struct SoftmaxLoss {
  Tensor exponentials{};  // (N, V) f32, as the first op left them
  Tensor targets{};
  Tensor statistics{};
  int rank = 0;
  std::int64_t first_token = 0;
  Tensor losses{};
  Tensor d_logits{};            // empty: losses only
  float gradient_scale = 1.0F;  // 1 / tokens of the global batch
  std::int64_t row = 0;
};

// Both in one for one rank, with the same bits: a row is scaled while it is still in the cache.
// logits (N, V) f32 are used up.
struct SoftmaxCrossEntropy {
  Tensor logits{};
  Tensor targets{};
  Tensor losses{};
  Tensor d_logits{};  // as above
  float gradient_scale = 1.0F;
  std::int64_t row = 0;
};

void softmax_statistics(StreamView stream, const SoftmaxStatistics& args);
void softmax_loss(StreamView stream, const SoftmaxLoss& args);
void softmax_cross_entropy(StreamView stream, const SoftmaxCrossEntropy& args);

// How many of N tokens' logits are made at a time, so that full logits never exist; V is the
// number of columns, of the rank that has most.
[[nodiscard]] std::int64_t cross_entropy_chunk_tokens(std::int64_t N,
                                                      std::int64_t V,
                                                      Device device);

// Elements from one row of V logits to the next: on devices a multiple of what their products want
// rows to begin at, else V.
[[nodiscard]] std::int64_t logits_row(std::int64_t V, Device device);

}  // namespace slackline
