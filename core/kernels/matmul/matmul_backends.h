#pragma once

#include <cstddef>

#include "core/kernels/matmul/matmul.h"

// The two ways in which matmul.cpp has a product made on the CPU; tests call them directly.
// Arguments are those of matmul(), already checked.
namespace slackline {

struct MatmulShape {
  std::size_t M = 0, N = 0, K = 0;
};

[[nodiscard]] MatmulShape shape_of(const MatmulArgs& args);

namespace cpu {

// Packs both operands panel by panel, widening bf16, and multiplies in fp32 (gemm_tile.h).
// T is the operands' type.
template <typename T>
void matmul_in_f32(StreamView stream, const MatmulArgs& args);

[[nodiscard]] std::size_t matmul_in_f32_workspace_bytes(const MatmulArgs& args, int num_threads);

// oneDNN, single-threaded on tiles: bf16 operands where the processor has units made for them. It
// takes f32 too, for tools/bench/kernel_bench, which compares the two ways.
// REQUIRES: onednn_multiplies_bf16() for bf16 operands.
void matmul_by_onednn(StreamView stream, const MatmulArgs& args);

[[nodiscard]] std::size_t matmul_by_onednn_workspace_bytes(const MatmulArgs& args, int num_threads);

// oneDNN has bf16 products from AVX-512 on.
[[nodiscard]] bool onednn_multiplies_bf16();

}  // namespace cpu

}  // namespace slackline
