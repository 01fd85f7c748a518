#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rng.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

// Causal multi-head self-attention with online softmax (Milakov and Gimelshein, 2018; blocked as
// in FlashAttention): memory grows with T, never with T * T. Scale 1 / sqrt(D).
//
// qkv is (B, T, 3 * H * D): Q, then K, then V, heads contiguous in each (GPT-2's c_attn output).
// output is (B, T, H * D). log_sum_exp is (B, H, T) f32 and is what the backward pass needs.
// Dropout acts on the probabilities, after normalization; element = (head * T + query) * T + key
// with the global head index, so that results do not depend on who owns which heads.
// fp32 accumulation and softmax for both types; deterministic for any number of threads.
struct AttentionForward {
  Tensor qkv{};
  Tensor output{};
  Tensor log_sum_exp{};
  int num_heads = 0;  // H of this call
  DropoutKey dropout{};
  std::int64_t first_head = 0;  // global index of head 0 of this call
};

// Columns of a head that the kernels of a CUDA device take at most.
inline constexpr int kMostHeadColumnsOfDevice = 256;

// d_qkv is written, not accumulated.
struct AttentionBackward {
  Tensor qkv{};
  Tensor output{};
  Tensor log_sum_exp{};
  Tensor d_output{};
  Tensor d_qkv{};
  int num_heads = 0;
  DropoutKey dropout{};
  std::int64_t first_head = 0;
};

void attention_forward(StreamView stream, const AttentionForward& args);
void attention_backward(StreamView stream, const AttentionBackward& args);

// One new token per sequence against cached keys and values, for generation (f32 only).
// query is (B, H * D); keys and values are (B, capacity, H * D), of which the first `length`
// positions count (the new one included); output is (B, H * D).
struct AttentionDecode {
  Tensor query{};
  Tensor keys{};
  Tensor values{};
  Tensor output{};
  int num_heads = 0;
  std::int64_t length = 0;
};

void attention_decode(StreamView stream, const AttentionDecode& args);

// Copies the keys and values of one sequence's new tokens into its cache (f32 only). qkv is
// (N, 3 * C); keys and values are (capacity, C), of which the rows first .. first + N - 1 are
// written.
struct AttentionCache {
  Tensor qkv{};
  Tensor keys{};
  Tensor values{};
  std::int64_t first = 0;
};

void cache_keys_values(StreamView stream, const AttentionCache& args);

// Scratch from the stream's workspace, the larger of forward and backward.
struct AttentionSize {
  std::int64_t B = 0, T = 0, H = 0, D = 0;
  DType dtype = DType::f32;
};

[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionSize& size,
                                                    const Workers& workers);

}  // namespace slackline
