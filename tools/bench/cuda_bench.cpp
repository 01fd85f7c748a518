// Times ops and codecs on the CUDA device against what bounds them: what waits for memory against a
// copy of as many bytes, measured right before each op of the same run, and products against the
// card's dense peak. Operands rotate through memory larger than the last cache. A share is the
// bound's time by the op's, median of `pairs` (lowest .. highest); bytes are what the op has to
// move, as its header says. Rows "chosen ..." compare products of GPT-2 124M and 1.5B with the best
// of up to 32 algorithms that cuBLASLt suggests for each; nothing where cuBLASLt is emulated.
//
//   cuda_bench [--only "layer norm"] [--pairs 9] [--tokens 16384] [--hidden 768] [--vocab 50257]
//              [--gradients 124439808]
//   cuda_bench --peak              the card's dense bf16 peak in FLOP/s, 0 if it is not known
//   cuda_bench --ceiling 8192      what a bf16 product of this edge reaches, in FLOP/s

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "compress/codec.h"
#include "core/cuda/cuda_device.h"
#include "core/kernels/attention/attention.h"
#include "core/kernels/elementwise/accumulate.h"
#include "core/kernels/elementwise/bias_gradient.h"
#include "core/kernels/elementwise/dropout.h"
#include "core/kernels/elementwise/elementwise.h"
#include "core/kernels/elementwise/gelu.h"
#include "core/kernels/embedding/embedding.h"
#include "core/kernels/loss/cross_entropy.h"
#include "core/kernels/matmul/matmul.h"
#include "core/kernels/norm/layer_norm.h"
#include "core/kernels/update/adamw.h"
#include "core/kernels/update/sum_of_squares.h"
#include "core/tensor/host_tensor.h"
#include "tools/bench/device_timer.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"
#include "tools/record/card_peak.h"

namespace slackline {

namespace {

struct Options {
  std::string only;
  int pairs = 9;
  std::int64_t tokens = 16384;
  std::int64_t hidden = 768;
  std::int64_t vocab = 50257;
  std::int64_t gradients = 124439808;  // of GPT-2 124M
  bool peak = false;
  std::int64_t ceiling = 0;
};

// Of the embedding's and the classifier's rows.
constexpr std::int64_t kSequence = 1024;

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        ring_(std::size_t{options.tokens > 4096 ? 6U : 1U} << 30U),
        stream_({.device = Device::cuda, .workspace_bytes = std::size_t{1} << 30U}),
        timer_({.only = options.only, .times = options.pairs}, ring_) {}

  void run() {
    fmt::print("{}\n", cuda::device_text());
    for (const DType dtype : {DType::bf16, DType::f32}) {
      norms(dtype);
      elementwise(dtype);
      embedding(dtype);
      cross_entropy(dtype);
    }
    optimizer();
    for (const DType dtype : {DType::bf16, DType::f32}) {
      products(dtype);
      classifier_products(dtype);
      attention(dtype);
      for (const std::int64_t C : {768, 1600}) {
        algorithms(dtype, C);
      }
    }
    codecs();
    top_k_of_all_gradients();
  }

  // FLOP/s of a square product, in bf16.
  [[nodiscard]] double ceiling() {
    const std::int64_t edge = options_.ceiling;
    const auto take = [&] { return ring_.take(DType::bf16, {edge, edge}); };
    const double product_seconds = timer_.median_seconds(
        stream_, [&] { matmul(stream_, {.a = take(), .b = take(), .c = take()}); });
    return 2.0 * std::pow(static_cast<double>(edge), 3) / product_seconds;
  }

 private:
  [[nodiscard]] Shape rows() const { return {options_.tokens, options_.hidden}; }

  [[nodiscard]] double row_bytes(DType dtype) const { return row_bytes(dtype, rows()); }

  [[nodiscard]] static double row_bytes(DType dtype, const Shape& shape) {
    return static_cast<double>(shape.num_elements() * size_of(dtype));
  }

  void norms(DType dtype) {
    const std::string kind(name_of(dtype));
    const std::int64_t C = options_.hidden;
    const auto take = [&] { return ring_.take(dtype, rows()); };
    const double row = row_bytes(dtype);
    const Tensor scale = ring_.take(DType::f32, {C});
    const Tensor shift = ring_.take(DType::f32, {C});
    const Tensor mean = ring_.take(DType::f32, {options_.tokens});
    const Tensor rstd = ring_.take(DType::f32, {options_.tokens});
    const auto norm_of = [&](const Tensor& x) {
      return LayerNormForward{
          .x = x, .weight = scale, .bias = shift, .y = take(), .mean = mean, .rstd = rstd};
    };
    timer_.against_copy(stream_, "layer norm forward " + kind, 2 * row, [&] {
      layer_norm_forward(stream_, norm_of(take()));
    });
    timer_.against_copy(stream_, "residual and layer norm " + kind, 4 * row, [&] {
      const Tensor sum = take();
      layer_norm_of_sum(stream_, {.x = take(), .residual = take(), .out = sum}, norm_of(sum));
    });
    timer_.against_copy(stream_, "layer norm backward, added " + kind, 4 * row, [&] {
      layer_norm_backward(stream_,
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

  void elementwise(DType dtype) {
    const std::string kind(name_of(dtype));
    const auto take = [&] { return ring_.take(dtype, rows()); };
    const double row = row_bytes(dtype);
    const Tensor sums = ring_.take(DType::f32, {options_.hidden});
    timer_.against_copy(
        stream_, "add " + kind, 3 * row, [&] { add(stream_, take(), take(), take()); });
    timer_.against_copy(stream_, "residual and dropout " + kind, 3 * row, [&] {
      dropout_add(stream_,
                  {.x = take(),
                   .residual = take(),
                   .out = take(),
                   .key = {.probability = 0.1F, .site = {1, 2}, .step = 1}});
    });
    timer_.against_copy(
        stream_, "gelu forward " + kind, 2 * row, [&] { gelu_forward(stream_, take(), take()); });
    timer_.against_copy(stream_, "gelu backward " + kind, 3 * row, [&] {
      gelu_backward(stream_, {.x = take(), .dy = take(), .dx = take()});
    });
    timer_.against_copy(
        stream_, "bias gradient " + kind, row, [&] { bias_gradient(stream_, take(), sums); });
    if (dtype == DType::bf16) {
      timer_.against_copy(stream_, "cast f32 to bf16", 3 * row, [&] {
        cast(stream_, ring_.take(DType::f32, rows()), take());
      });
    }
  }

  // Every table's row that is needed is read once, every gradient's read and written once.
  void embedding(DType dtype) {
    const std::string kind(name_of(dtype));
    const std::int64_t C = options_.hidden;
    const std::int64_t T = std::min(kSequence, options_.tokens);
    const std::int64_t B = options_.tokens / T;
    const Buffer memory("tokens", static_cast<std::size_t>(B * T) * 4, Backing::cuda);
    const Tensor tokens = memory.view(DType::i32, {B, T});
    const auto table_rows = static_cast<double>(draw_tokens(tokens) + T);
    const double row = row_bytes(dtype, {B * T, C});
    const auto tables = static_cast<double>(C) * table_rows;
    timer_.against_copy(stream_,
                        "embedding forward " + kind,
                        row + tables * static_cast<double>(size_of(dtype)),
                        [&] {
                          embedding_forward(stream_,
                                            {.tokens = tokens,
                                             .token_table = ring_.take(dtype, {options_.vocab, C}),
                                             .position_table = ring_.take(dtype, {T, C}),
                                             .y = ring_.take(dtype, {B, T, C})});
                        });
    timer_.against_copy(stream_, "embedding backward " + kind, row + 8 * tables, [&] {
      embedding_backward(stream_,
                         {.tokens = tokens,
                          .dy = ring_.take(dtype, {B, T, C}),
                          .d_token_table = ring_.take(DType::f32, {options_.vocab, C}),
                          .d_position_table = ring_.take(DType::f32, {T, C})});
    });
  }

  // Of one chunk. In bf16 the gradients have a place of their own.
  void cross_entropy(DType dtype) {
    const std::string kind(name_of(dtype));
    const Shape chunk = classifier_chunk();
    const std::int64_t N = chunk[0];
    const Buffer memory("targets", static_cast<std::size_t>(N) * 4, Backing::cuda);
    const Tensor targets = memory.view(DType::i32, {N});
    draw_tokens(targets);
    const Tensor losses = ring_.take(DType::f32, {N});
    const Tensor own_statistics = ring_.take(DType::f32, {N, kSoftmaxStatistics});
    const Tensor statistics = ring_.take(DType::f32, {1, N, kSoftmaxStatistics});
    const auto elements = static_cast<double>(chunk.num_elements());
    const auto gradient_of = [&](const Tensor& logits) {
      return dtype == DType::f32 ? logits : ring_.take(dtype, chunk);
    };
    const auto written = static_cast<double>(size_of(dtype));
    timer_.against_copy(stream_, "cross-entropy " + kind, (4 + written) * elements, [&] {
      const Tensor logits = ring_.take(DType::f32, chunk);
      softmax_cross_entropy(stream_,
                            {.logits = logits,
                             .targets = targets,
                             .losses = losses,
                             .d_logits = gradient_of(logits)});
    });
    if (dtype == DType::f32) {
      timer_.against_copy(stream_, "cross-entropy over ranks, statistics", 8 * elements, [&] {
        softmax_statistics(stream_,
                           {.logits = ring_.take(DType::f32, chunk),
                            .targets = targets,
                            .statistics = own_statistics});
      });
    }
    timer_.against_copy(
        stream_, "cross-entropy over ranks, loss " + kind, (4 + written) * elements, [&] {
          const Tensor exponentials = ring_.take(DType::f32, chunk);
          softmax_loss(stream_,
                       {.exponentials = exponentials,
                        .targets = targets,
                        .statistics = statistics,
                        .losses = losses,
                        .d_logits = gradient_of(exponentials)});
        });
  }

  [[nodiscard]] Shape classifier_chunk() const {
    return {cross_entropy_chunk_tokens(options_.tokens, options_.vocab), options_.vocab};
  }

  // Fills a tensor of tokens at random; returns how many different ones there are.
  std::size_t draw_tokens(const Tensor& tokens) const {
    const HostTensor host(tokens, HostTensor::Contents::undefined);
    std::mt19937 random(7);
    std::uniform_int_distribution<std::int32_t> any(0,
                                                    static_cast<std::int32_t>(options_.vocab) - 1);
    const std::span<std::int32_t> values = host.tensor().span<std::int32_t>();
    std::ranges::generate(values, [&] { return any(random); });
    host.write_back();
    return std::set<std::int32_t>(values.begin(), values.end()).size();
  }

  void optimizer() {
    const Shape shape{options_.hidden * 4, options_.hidden * 12};
    const auto take = [&] { return ring_.take(DType::f32, shape); };
    const auto elements = static_cast<double>(shape.num_elements());
    const Tensor m = ring_.take(DType::f32, shape);
    const Tensor v = ring_.take(DType::f32, shape);
    fill_zero(stream_, m);
    fill_zero(stream_, v);
    timer_.against_copy(stream_, "adamw with a bf16 copy", 30 * elements, [&] {
      adamw(stream_,
            {.weight = take(),
             .gradient = take(),
             .m = m,
             .v = v,
             .weight_copy = ring_.take(DType::bf16, shape)},
            {.lr = 1e-4});
    });
    timer_.against_copy(stream_, "sum of squares", 4 * elements, [&] {
      static_cast<void>(sum_of_squares(stream_, take()));
    });
    timer_.against_copy(
        stream_, "accumulate", 12 * elements, [&] { accumulate(stream_, take(), take()); });
  }

  void products(DType dtype) {
    const std::int64_t M = options_.tokens;
    const std::int64_t C = options_.hidden;
    for (const auto& [N, K] : {std::pair{C, C}, {3 * C, C}, {4 * C, C}, {C, 4 * C}}) {
      const double flops = 2.0 * static_cast<double>(M * N * K);
      const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, N, K);
      timer_.against_peak(stream_, "product y  " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, K}),
                .b = ring_.take(dtype, {K, N}),
                .c = ring_.take(dtype, {M, N}),
                .bias = ring_.take(DType::f32, {N})});
      });
      timer_.against_peak(stream_, "product dx " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, N}),
                .b = ring_.take(dtype, {K, N}),
                .c = ring_.take(dtype, {M, K}),
                .transpose_b = Transpose::yes});
      });
      timer_.against_peak(stream_, "product dW " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, K}),
                .b = ring_.take(dtype, {M, N}),
                .c = ring_.take(DType::f32, {K, N}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes});
      });
      timer_.against_peak(stream_, "product dW and db " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, K}),
                .b = ring_.take(dtype, {M, N}),
                .c = ring_.take(DType::f32, {K, N}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes,
                .bias_gradient = ring_.take(DType::f32, {N})});
      });
    }
  }

  // The classifier's three, with the vocabulary as it is and rounded up: rows of a length that is
  // no multiple of 16 bytes leave the library few algorithms.
  void classifier_products(DType dtype) {
    const std::int64_t M = classifier_chunk()[0];
    const std::int64_t C = options_.hidden;
    for (const std::int64_t V : {options_.vocab, (options_.vocab + 63) / 64 * 64}) {
      const double flops = 2.0 * static_cast<double>(M * V * C);
      const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, V, C);
      timer_.against_peak(stream_, "logits        " + shape, dtype, flops, [&] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, C}),
                .b = ring_.take(dtype, {V, C}),
                .c = ring_.take(DType::f32, {M, V}),
                .transpose_b = Transpose::yes});
      });
      timer_.against_peak(stream_, "classifier dx " + shape, dtype, flops, [&] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, V}),
                .b = ring_.take(dtype, {V, C}),
                .c = ring_.take(dtype, {M, C})});
      });
      timer_.against_peak(stream_, "classifier dW " + shape, dtype, flops, [&] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, V}),
                .b = ring_.take(dtype, {M, C}),
                .c = ring_.take(DType::f32, {V, C}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes});
      });
    }
  }

  // Of the four weights of a layer of width C.
  void algorithms(DType dtype, std::int64_t C) {
    const std::int64_t M = options_.tokens;
    for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}}) {
      const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, out, in);
      const auto row = [&, in = in, out = out](const std::string& name, auto make_args) {
        timer_.against_suggestions(stream_,
                                   fmt::format("chosen {}{}", name, shape),
                                   2.0 * static_cast<double>(M * in * out),
                                   make_args);
      };
      row("y  ", [&, in = in, out = out] {
        return MatmulArgs{.a = ring_.take(dtype, {M, in}),
                          .b = ring_.take(dtype, {in, out}),
                          .c = ring_.take(dtype, {M, out}),
                          .bias = ring_.take(dtype, {out})};
      });
      row("dx ", [&, in = in, out = out] {
        return MatmulArgs{.a = ring_.take(dtype, {M, out}),
                          .b = ring_.take(dtype, {in, out}),
                          .c = ring_.take(dtype, {M, in}),
                          .transpose_b = Transpose::yes};
      });
      row("dW ", [&, in = in, out = out] {
        return MatmulArgs{.a = ring_.take(dtype, {M, in}),
                          .b = ring_.take(dtype, {M, out}),
                          .c = ring_.take(DType::f32, {in, out}),
                          .transpose_a = Transpose::yes};
      });
    }
  }

  // Half of the square counts.
  void attention(DType dtype) {
    constexpr std::int64_t kColumns = 64;
    const std::int64_t T = std::min(kSequence, options_.tokens);
    const std::int64_t B = options_.tokens / T;
    const std::int64_t H = options_.hidden / kColumns;
    const double product = static_cast<double>(B * H * T * T * kColumns);
    const Tensor sums = ring_.take(DType::f32, {B, H, T});
    const auto take = [&](std::int64_t columns) {
      return ring_.take(dtype, {B, T, columns * H * kColumns});
    };
    const std::string kind(name_of(dtype));
    const int heads = static_cast<int>(H);
    timer_.against_peak(stream_, "attention forward  " + kind, dtype, 2 * product, [&] {
      attention_forward(
          stream_, {.qkv = take(3), .output = take(1), .log_sum_exp = sums, .num_heads = heads});
    });
    timer_.against_peak(stream_, "attention backward " + kind, dtype, 5 * product, [&] {
      attention_backward(stream_,
                         {.qkv = take(3),
                          .output = take(1),
                          .log_sum_exp = sums,
                          .d_output = take(1),
                          .d_qkv = take(3),
                          .num_heads = heads});
    });
  }

  // Of the matrices of a layer, with a residual. The floor: values and residual read, the residual
  // written.
  void codecs() {
    const std::int64_t C = options_.hidden;
    const std::vector<CodecPart> parts = {{.name = "qkv", .shape = {C, 3 * C}},
                                          {.name = "projection", .shape = {C, C}},
                                          {.name = "up", .shape = {C, 4 * C}},
                                          {.name = "down", .shape = {4 * C, C}}};
    const std::vector<std::pair<std::string, CodecSetting>> settings = {
        {"low rank 4", {.kind = CodecKind::low_rank, .rank = 4}},
        {"top-k 1 %", {.kind = CodecKind::top_k, .ratio = 0.01}},
        {"random-k 1 %", {.kind = CodecKind::random_k, .ratio = 0.01}},
        {"quantize 8 by row", {.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token}},
        {"cast", {.kind = CodecKind::cast}}};
    for (const auto& [name, setting] : settings) {
      const auto codec = make_codec(setting, parts, 1, Device::cuda);
      Stream stream(
          {.device = Device::cuda, .workspace_bytes = codec->workspace_bytes({1, Device::cuda})});
      double elements = 0.0;
      const auto matrices = [&] {
        Codec::Matrices taken;
        for (const CodecPart& part : parts) {
          taken.push_back(ring_.take(DType::f32, {part.shape.rows, part.shape.columns}));
        }
        return taken;
      };
      for (const CodecPart& part : parts) {
        elements += static_cast<double>(part.shape.num_elements());
      }
      const Buffer frame("frame", codec->frame_bytes(), Backing::cuda);
      const Tensor sent = frame.view(DType::u8, {static_cast<std::int64_t>(codec->frame_bytes())});
      std::uint64_t step = 0;
      timer_.against_copy(stream, "encode " + name, 12 * elements, [&, codec = codec.get()] {
        codec->encode(stream, matrices(), matrices(), {.seed = 1, .step = ++step}, sent);
      });
      timer_.against_copy(stream, "decode " + name, 4 * elements, [&, codec = codec.get()] {
        codec->decode(stream, sent, matrices(), false);
      });
    }
  }

  // One message, as large as a model. The floor is that of the codecs above.
  void top_k_of_all_gradients() {
    const MatrixShape shape{.rows = 1, .columns = options_.gradients};
    const auto codec = make_codec({.kind = CodecKind::top_k, .ratio = 0.01},
                                  {{.name = "all gradients", .shape = shape}},
                                  1,
                                  Device::cuda);
    Stream stream(
        {.device = Device::cuda, .workspace_bytes = codec->workspace_bytes({1, Device::cuda})});
    const auto take = [&] {
      return Codec::Matrices{ring_.take(DType::f32, {shape.rows, shape.columns})};
    };
    const Buffer frame("frame", codec->frame_bytes(), Backing::cuda);
    const Tensor sent = frame.view(DType::u8, {static_cast<std::int64_t>(codec->frame_bytes())});
    std::uint64_t step = 0;
    const double bytes = 12.0 * static_cast<double>(shape.num_elements());
    timer_.against_copy(stream, "encode top-k 1 % of all gradients", bytes, [&] {
      codec->encode(stream, take(), take(), {.seed = 1, .step = ++step}, sent);
    });
  }

  Options options_;
  DeviceRing ring_;
  Stream stream_;
  DeviceTimer timer_;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Times ops and codecs on the CUDA device against what bounds them",
                   "cuda_bench");
  Command app = line.root();
  app.option("--only", &options.only, "Only ops whose name contains this");
  app.option("--pairs", &options.pairs, "Timed pairs of bound and op", {.limit = Limit::positive});
  app.option("--tokens", &options.tokens, "Rows of a micro-batch", {.limit = Limit::positive});
  app.option("--hidden",
             &options.hidden,
             "Width of the model, a multiple of 64",
             {.limit = Limit::positive});
  app.option("--vocab", &options.vocab, "Tokens of the vocabulary", {.limit = Limit::positive});
  app.option("--gradients",
             &options.gradients,
             "Elements of the message of all gradients",
             {.limit = Limit::positive});
  app.flag("--peak", &options.peak, "Print the card's dense bf16 peak, 0 if unknown, and end");
  app.option("--ceiling",
             &options.ceiling,
             "Print what a bf16 product of this edge reaches, in FLOP/s, and end",
             {.limit = Limit::positive});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  cuda::use_device(0);
  if (options.peak) {
    fmt::print("{}\n", dense_peak_flops(cuda::device_text(), DType::bf16));
    return 0;
  }
  Bench bench(options);
  if (options.ceiling > 0) {
    fmt::print("{}\n", bench.ceiling());
    return 0;
  }
  bench.run();
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
