#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "core/kernels/attention/attention.h"
#include "core/kernels/matmul/matmul.h"
#include "tools/bench/cuda_bench.h"

namespace slackline {

namespace {

void products(CudaBench& bench, DType dtype) {
  const std::int64_t M = bench.options.tokens;
  const std::int64_t C = bench.options.hidden;
  for (const auto& [N, K] : {std::pair{C, C}, {3 * C, C}, {4 * C, C}, {C, 4 * C}}) {
    const double flops = 2.0 * static_cast<double>(M * N * K);
    const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, N, K);
    bench.timer.against_peak(bench.stream, "product y  " + shape, dtype, flops, [&, N = N, K = K] {
      matmul(bench.stream,
             {.a = bench.ring.take(dtype, {M, K}),
              .b = bench.ring.take(dtype, {K, N}),
              .c = bench.ring.take(dtype, {M, N}),
              .bias = bench.ring.take(DType::f32, {N})});
    });
    bench.timer.against_peak(bench.stream, "product dx " + shape, dtype, flops, [&, N = N, K = K] {
      matmul(bench.stream,
             {.a = bench.ring.take(dtype, {M, N}),
              .b = bench.ring.take(dtype, {K, N}),
              .c = bench.ring.take(dtype, {M, K}),
              .transpose_b = Transpose::yes});
    });
    bench.timer.against_peak(bench.stream, "product dW " + shape, dtype, flops, [&, N = N, K = K] {
      matmul(bench.stream,
             {.a = bench.ring.take(dtype, {M, K}),
              .b = bench.ring.take(dtype, {M, N}),
              .c = bench.ring.take(DType::f32, {K, N}),
              .transpose_a = Transpose::yes,
              .accumulate = Accumulate::yes});
    });
    bench.timer.against_peak(
        bench.stream, "product dW and db " + shape, dtype, flops, [&, N = N, K = K] {
          matmul(bench.stream,
                 {.a = bench.ring.take(dtype, {M, K}),
                  .b = bench.ring.take(dtype, {M, N}),
                  .c = bench.ring.take(DType::f32, {K, N}),
                  .transpose_a = Transpose::yes,
                  .accumulate = Accumulate::yes,
                  .bias_gradient = bench.ring.take(DType::f32, {N})});
        });
  }
}

// The classifier's three. Rows of logits lie as far apart as the head puts them: rows of a length
// that is no multiple of 16 bytes leave the library few algorithms.
void classifier_products(CudaBench& bench, DType dtype) {
  const std::int64_t M = bench.classifier_chunk()[0];
  const std::int64_t C = bench.options.hidden;
  const std::int64_t V = bench.options.vocab;
  const double flops = 2.0 * static_cast<double>(M * V * C);
  const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, V, C);
  bench.timer.against_peak(bench.stream, "logits        " + shape, dtype, flops, [&] {
    matmul(bench.stream,
           {.a = bench.ring.take(dtype, {M, C}),
            .b = bench.ring.take(dtype, {V, C}),
            .c = bench.take_logits(DType::f32),
            .transpose_b = Transpose::yes,
            .row_of_c = bench.classifier_row()});
  });
  bench.timer.against_peak(bench.stream, "classifier dx " + shape, dtype, flops, [&] {
    matmul(bench.stream,
           {.a = bench.take_logits(dtype),
            .b = bench.ring.take(dtype, {V, C}),
            .c = bench.ring.take(dtype, {M, C}),
            .row_of_a = bench.classifier_row()});
  });
  bench.timer.against_peak(bench.stream, "classifier dW " + shape, dtype, flops, [&] {
    matmul(bench.stream,
           {.a = bench.take_logits(dtype),
            .b = bench.ring.take(dtype, {M, C}),
            .c = bench.ring.take(DType::f32, {V, C}),
            .transpose_a = Transpose::yes,
            .accumulate = Accumulate::yes,
            .row_of_a = bench.classifier_row()});
  });
}

// The four weights of a layer of width C are multiplied.
void algorithms(CudaBench& bench, DType dtype, std::int64_t C) {
  const std::int64_t M = bench.options.tokens;
  for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}}) {
    const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, out, in);
    const auto row = [&, in = in, out = out](const std::string& name, auto make_args) {
      bench.timer.against_suggestions(bench.stream,
                                      fmt::format("chosen {}{}", name, shape),
                                      2.0 * static_cast<double>(M * in * out),
                                      make_args);
    };
    row("y  ", [&, in = in, out = out] {
      return MatmulArgs{.a = bench.ring.take(dtype, {M, in}),
                        .b = bench.ring.take(dtype, {in, out}),
                        .c = bench.ring.take(dtype, {M, out}),
                        .bias = bench.ring.take(dtype, {out})};
    });
    row("dx ", [&, in = in, out = out] {
      return MatmulArgs{.a = bench.ring.take(dtype, {M, out}),
                        .b = bench.ring.take(dtype, {in, out}),
                        .c = bench.ring.take(dtype, {M, in}),
                        .transpose_b = Transpose::yes};
    });
    row("dW ", [&, in = in, out = out] {
      return MatmulArgs{.a = bench.ring.take(dtype, {M, in}),
                        .b = bench.ring.take(dtype, {M, out}),
                        .c = bench.ring.take(DType::f32, {in, out}),
                        .transpose_a = Transpose::yes};
    });
  }
}

// Half of the square counts.
void attention(CudaBench& bench, DType dtype) {
  constexpr std::int64_t kColumns = 64;
  const std::int64_t T = std::min(CudaBench::kSequence, bench.options.tokens);
  const std::int64_t B = bench.options.tokens / T;
  const std::int64_t H = bench.options.hidden / kColumns;
  const double product = static_cast<double>(B * H * T * T * kColumns);
  const Tensor sums = bench.ring.take(DType::f32, {B, H, T});
  const auto take = [&](std::int64_t columns) {
    return bench.ring.take(dtype, {B, T, columns * H * kColumns});
  };
  const std::string kind(name_of(dtype));
  const int heads = static_cast<int>(H);
  bench.timer.against_peak(bench.stream, "attention forward  " + kind, dtype, 2 * product, [&] {
    attention_forward(bench.stream,
                      {.qkv = take(3), .output = take(1), .log_sum_exp = sums, .num_heads = heads});
  });
  bench.timer.against_peak(bench.stream, "attention backward " + kind, dtype, 5 * product, [&] {
    attention_backward(bench.stream,
                       {.qkv = take(3),
                        .output = take(1),
                        .log_sum_exp = sums,
                        .d_output = take(1),
                        .d_qkv = take(3),
                        .num_heads = heads});
  });
}

}  // namespace

void time_products(CudaBench& bench) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    products(bench, dtype);
    classifier_products(bench, dtype);
    attention(bench, dtype);
    for (const std::int64_t C : {768, 1600}) {
      algorithms(bench, dtype, C);
    }
  }
}

double product_ceiling(CudaBench& bench, std::int64_t edge) {
  const auto take = [&] { return bench.ring.take(DType::bf16, {edge, edge}); };
  const double product_seconds = bench.timer.median_seconds(
      bench.stream, [&] { matmul(bench.stream, {.a = take(), .b = take(), .c = take()}); });
  return 2.0 * std::pow(static_cast<double>(edge), 3) / product_seconds;
}

}  // namespace slackline
