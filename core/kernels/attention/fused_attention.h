#pragma once

#include <cstddef>

#include "core/kernels/attention/attention.h"

// Who may take over attention_forward() and attention_backward() on the CUDA device: cuDNN
// (attention_cudnn.cpp), or nobody (no_cudnn.cpp).
namespace slackline::cuda {

// The whole call, for bf16 without dropout. False, and nothing is queued, where the library has
// nothing for the shape on this card or asks for more scratch than below. Deterministic: the shape,
// the library and the card decide the bits, so that, unlike with the own kernels, a head's bits may
// depend on how many heads a call has. log_sum_exp is that of the own kernels: either may follow
// the other.
[[nodiscard]] bool fused_attention_forward(StreamView stream, const AttentionForward& args);
[[nodiscard]] bool fused_attention_backward(StreamView stream, const AttentionBackward& args);

// Scratch of either call, on the stream's workspace: a bound, for the library tells what it needs
// only on a card. It grows with T, but for T x T gradients of scores of up to 512 MiB. 0 where both
// calls return false for every card.
[[nodiscard]] std::size_t fused_attention_workspace_bytes(const AttentionSize& size);

}  // namespace slackline::cuda
