#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/embedding/embedding.h"
#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/update/adamw.h"
#include "core/kernels/update/sum_of_squares.h"
#include "core/tensor/host_tensor.h"
#include "tools/bench/cuda_bench.h"

namespace slackline {

namespace {

Shape rows(const CudaBench& bench) {
  return {bench.options.tokens, bench.options.hidden};
}

double row_bytes(DType dtype, const Shape& shape) {
  return static_cast<double>(shape.num_elements() * size_of(dtype));
}

// Fills a tensor of tokens at random; returns how many different ones there are.
std::size_t draw_tokens(const CudaBench& bench, const Tensor& tokens) {
  const HostTensor host(tokens, HostTensor::Contents::undefined);
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int32_t> any(
      0, static_cast<std::int32_t>(bench.options.vocab) - 1);
  const std::span<std::int32_t> values = host.tensor().span<std::int32_t>();
  std::ranges::generate(values, [&] { return any(random); });
  host.write_back();
  return std::set<std::int32_t>(values.begin(), values.end()).size();
}

void norms(CudaBench& bench, DType dtype) {
  const std::string kind(name_of(dtype));
  const std::int64_t C = bench.options.hidden;
  const auto take = [&] { return bench.ring.take(dtype, rows(bench)); };
  const double row = row_bytes(dtype, rows(bench));
  const Tensor scale = bench.ring.take(DType::f32, {C});
  const Tensor shift = bench.ring.take(DType::f32, {C});
  const Tensor mean = bench.ring.take(DType::f32, {bench.options.tokens});
  const Tensor rstd = bench.ring.take(DType::f32, {bench.options.tokens});
  const auto norm_of = [&](const Tensor& x) {
    return LayerNormForward{
        .x = x, .weight = scale, .bias = shift, .y = take(), .mean = mean, .rstd = rstd};
  };
  bench.timer.against_copy(bench.stream, "layer norm forward " + kind, 2 * row, [&] {
    layer_norm_forward(bench.stream, norm_of(take()));
  });
  bench.timer.against_copy(bench.stream, "residual and layer norm " + kind, 4 * row, [&] {
    const Tensor sum = take();
    layer_norm_of_sum(bench.stream, {.x = take(), .residual = take(), .out = sum}, norm_of(sum));
  });
  bench.timer.against_copy(bench.stream, "layer norm backward, added " + kind, 4 * row, [&] {
    layer_norm_backward(bench.stream,
                        {.x = take(),
                         .weight = scale,
                         .mean = mean,
                         .rstd = rstd,
                         .dy = take(),
                         .dx = take(),
                         .accumulate_dx = Accumulate::yes,
                         .d_weight = scale,
                         .d_bias = shift});
  });
}

void elementwise(CudaBench& bench, DType dtype) {
  const std::string kind(name_of(dtype));
  const auto take = [&] { return bench.ring.take(dtype, rows(bench)); };
  const double row = row_bytes(dtype, rows(bench));
  const Tensor sums = bench.ring.take(DType::f32, {bench.options.hidden});
  bench.timer.against_copy(bench.stream, "residual and dropout " + kind, 3 * row, [&] {
    dropout_add(bench.stream,
                {.x = take(),
                 .residual = take(),
                 .out = take(),
                 .key = {.probability = 0.1F, .site = {1, 2}, .step = 1}});
  });
  bench.timer.against_copy(bench.stream, "bias gradient " + kind, row, [&] {
    bias_gradient(bench.stream, take(), sums);
  });
  if (dtype == DType::bf16) {
    bench.timer.against_copy(bench.stream, "cast f32 to bf16", 3 * row, [&] {
      cast(bench.stream, bench.ring.take(DType::f32, rows(bench)), take());
    });
  }
}

// Every table's row that is needed is read once, every gradient's read and written once.
void embedding(CudaBench& bench, DType dtype) {
  const std::string kind(name_of(dtype));
  const std::int64_t C = bench.options.hidden;
  const std::int64_t T = std::min(CudaBench::kSequence, bench.options.tokens);
  const std::int64_t B = bench.options.tokens / T;
  const Buffer memory("tokens", static_cast<std::size_t>(B * T) * 4, Backing::cuda);
  const Tensor tokens = memory.view(DType::i32, {B, T});
  const auto table_rows = static_cast<double>(draw_tokens(bench, tokens) + T);
  const double row = row_bytes(dtype, {B * T, C});
  const auto tables = static_cast<double>(C) * table_rows;
  bench.timer.against_copy(bench.stream,
                           "embedding forward " + kind,
                           row + tables * static_cast<double>(size_of(dtype)),
                           [&] {
                             embedding_forward(
                                 bench.stream,
                                 {.tokens = tokens,
                                  .token_table = bench.ring.take(dtype, {bench.options.vocab, C}),
                                  .position_table = bench.ring.take(dtype, {T, C}),
                                  .y = bench.ring.take(dtype, {B, T, C})});
                           });
  bench.timer.against_copy(bench.stream, "embedding backward " + kind, row + 8 * tables, [&] {
    embedding_backward(bench.stream,
                       {.tokens = tokens,
                        .dy = bench.ring.take(dtype, {B, T, C}),
                        .d_token_table = bench.ring.take(DType::f32, {bench.options.vocab, C}),
                        .d_position_table = bench.ring.take(DType::f32, {T, C})});
  });
}

// The logits are those of one chunk. In bf16 the gradients have a place of their own.
void cross_entropy(CudaBench& bench, DType dtype) {
  const StreamView stream = bench.stream;
  const std::string kind(name_of(dtype));
  const Shape chunk = bench.classifier_chunk();
  const std::int64_t N = chunk[0];
  const Buffer memory("targets", static_cast<std::size_t>(N) * 4, Backing::cuda);
  const Tensor targets = memory.view(DType::i32, {N});
  draw_tokens(bench, targets);
  const Tensor losses = bench.ring.take(DType::f32, {N});
  const Tensor own_statistics = bench.ring.take(DType::f32, {N, kSoftmaxStatistics});
  const Tensor statistics = bench.ring.take(DType::f32, {1, N, kSoftmaxStatistics});
  const auto elements = static_cast<double>(chunk.num_elements());
  const auto gradient_of = [&](const Tensor& logits) {
    return dtype == DType::f32 ? logits : bench.take_logits(dtype);
  };
  const auto written = static_cast<double>(size_of(dtype));
  bench.timer.against_copy(stream, "cross-entropy " + kind, (4 + written) * elements, [&] {
    const Tensor logits = bench.take_logits(DType::f32);
    softmax_cross_entropy(stream,
                          {.logits = logits,
                           .targets = targets,
                           .losses = losses,
                           .d_logits = gradient_of(logits),
                           .row = bench.classifier_row()});
  });
  if (dtype == DType::f32) {
    bench.timer.against_copy(stream, "cross-entropy over ranks, statistics", 8 * elements, [&] {
      softmax_statistics(stream,
                         {.logits = bench.take_logits(DType::f32),
                          .targets = targets,
                          .statistics = own_statistics,
                          .row = bench.classifier_row()});
    });
  }
  bench.timer.against_copy(
      stream, "cross-entropy over ranks, loss " + kind, (4 + written) * elements, [&] {
        const Tensor exponentials = bench.take_logits(DType::f32);
        softmax_loss(stream,
                     {.exponentials = exponentials,
                      .targets = targets,
                      .statistics = statistics,
                      .losses = losses,
                      .d_logits = gradient_of(exponentials),
                      .row = bench.classifier_row()});
      });
}

void optimizer(CudaBench& bench) {
  const Shape shape{bench.options.hidden * 4, bench.options.hidden * 12};
  const auto take = [&] { return bench.ring.take(DType::f32, shape); };
  const auto elements = static_cast<double>(shape.num_elements());
  const Tensor m = bench.ring.take(DType::f32, shape);
  const Tensor v = bench.ring.take(DType::f32, shape);
  fill_zero(bench.stream, m);
  fill_zero(bench.stream, v);
  bench.timer.against_copy(bench.stream, "adamw with a bf16 copy", 30 * elements, [&] {
    const AdamwUpdate update{{.weight = take(),
                              .gradient = take(),
                              .m = m,
                              .v = v,
                              .weight_copy = bench.ring.take(DType::bf16, shape)},
                             {.lr = 1e-4}};
    adamw(bench.stream, {&update, 1});
  });
  bench.timer.against_copy(bench.stream, "sum of squares", 4 * elements, [&] {
    static_cast<void>(sum_of_squares(bench.stream, take()));
  });
  bench.timer.against_copy(
      bench.stream, "accumulate", 12 * elements, [&] { accumulate(bench.stream, take(), take()); });
}

}  // namespace

void time_memory_ops(CudaBench& bench) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    norms(bench, dtype);
    elementwise(bench, dtype);
    embedding(bench, dtype);
    cross_entropy(bench, dtype);
  }
  optimizer(bench);
}

}  // namespace slackline
