#pragma once

#include <cstddef>

#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/matmul/matmul.h"  // Accumulate
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"
#include "core/tensor/workers.h"

namespace slackline {

inline constexpr float kLayerNormEpsilon = 1e-5F;  // GPT-2's

// y = (x - mean) * rstd * weight + bias over the last dimension, biased variance (two-pass).
// x, y are (N, C), f32 or bf16; weight and bias are (C) f32; mean and rstd are (N) f32 outputs.
struct LayerNormForward {
  Tensor x{};
  Tensor weight{};
  Tensor bias{};
  Tensor y{};
  Tensor mean{};
  Tensor rstd{};
};

// dy has x's type, or is f32. dx is written, or added to what it holds. d_weight and d_bias (C) f32
// are added to, rows summed in a fixed order: blocks of rows whose size depends on N alone, then
// blocks in order. Each may be empty: it is not made.
struct LayerNormBackward {
  Tensor x{};
  Tensor weight{};
  Tensor mean{};
  Tensor rstd{};
  Tensor dy{};
  Tensor dx{};
  Accumulate accumulate_dx = Accumulate::no;
  Tensor d_weight{};
  Tensor d_bias{};
};

void layer_norm_forward(StreamView stream, const LayerNormForward& args);

// dropout_add(sum), then layer_norm_forward(norm) of what it made: the same bits, on the CUDA
// device in one pass. REQUIRES: norm.x is sum.out, which is neither sum.x nor sum.residual; there
// is a residual.
void layer_norm_of_sum(StreamView stream, const DropoutAdd& sum, const LayerNormForward& norm);

void layer_norm_backward(StreamView stream, const LayerNormBackward& args);
[[nodiscard]] std::size_t layer_norm_workspace_bytes(std::int64_t N,
                                                     std::int64_t C,
                                                     const Workers& workers);

}  // namespace slackline
