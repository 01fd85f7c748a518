// Times matmul, attention and cross entropy on the shapes of GPT-2 124M against the peak of fused
// multiply-adds, measured right before each op of the same run: peak, op, peak, op.
// Operands are random and rotate through memory larger than the last cache, as weights do in a
// step. FLOPs: 2 M N K a product; attention counts half of the square, two products forward and
// five backward; cross entropy counts its three products.
//
//   kernel_bench [--only matmul] [--library onednn] [--dtype bf16] [--threads N] [--pairs 9]
//   [--tokens 256]

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/kernels/attention/attention.h"
#include "core/kernels/matmul/matmul.h"
#include "core/kernels/matmul/matmul_backends.h"
#include "core/rng.h"
#include "core/tensor/buffer.h"
#include "model/head.h"
#include "tools/bench/fma_peak.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

struct Options {
  std::string only;
  std::string dtype = "f32";
  std::string library = "own";
  int threads = default_num_threads();
  int pairs = 9;
  std::int64_t tokens = 256;
};

// Memory from which tensors are taken in turn, full of normal numbers with the deviation of
// GPT-2's weights.
class Ring {
 public:
  explicit Ring(DType dtype) : dtype_(dtype), memory_("ring", kBytes) {
    std::vector<float> pattern(kPattern);
    for (std::size_t i = 0; i < kPattern; ++i) {
      pattern[i] = static_cast<float>(0.02 * normal_pair(philox_key(1, "bench"), i / 2)[i % 2]);
    }
    const std::vector<BFloat16> narrow(pattern.begin(), pattern.end());
    const bool is_f32 = dtype == DType::f32;
    const void* from = is_f32 ? static_cast<const void*>(pattern.data()) : narrow.data();
    const std::size_t bytes = kPattern * size_of(dtype);
    for (std::size_t at = 0; at < kBytes; at += bytes) {
      std::memcpy(memory_.data() + at, from, bytes);
    }
  }

  Tensor take(const Shape& shape) {
    const std::size_t bytes = Arena::aligned_bytes(dtype_, shape);
    SL_CHECK(bytes <= kBytes, "a tensor of " + std::to_string(bytes) + " bytes");
    used_ = used_ + bytes > kBytes ? 0 : used_;
    const Tensor tensor = memory_.view(dtype_, shape, used_);
    used_ += bytes;
    return tensor;
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{768} << 20U;
  static constexpr std::size_t kPattern = std::size_t{1} << 20U;

  DType dtype_;
  Buffer memory_;
  std::size_t used_ = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        dtype_(options.dtype == "bf16" ? DType::bf16 : DType::f32),
        operands_(dtype_),
        f32_(DType::f32),
        stream_({.num_threads = options.threads, .workspace_bytes = std::size_t{1} << 30U}) {}

  void run() {
    fmt::print("{} threads, {}, bf16 units {}; median of {} pairs (lowest .. highest share)\n",
               options_.threads,
               options_.dtype,
               matmul_uses_bf16_units() ? "used" : "not used",
               options_.pairs);
    constexpr std::int64_t kVocab = 50257;
    for (const auto& [N, K] : {std::pair{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}}) {
      linear(options_.tokens, N, K);
    }
    head(options_.tokens, kVocab, 768);
    for (const std::int64_t T : {64, 256, 1024}) {
      attention({.B = std::max<std::int64_t>(1, options_.tokens / T), .T = T, .H = 12, .D = 64});
    }
    cross_entropy(options_.tokens, 768, kVocab);
  }

 private:
  // A linear layer's three products: y = x W, dx = dy W^T, dW += x^T dy.
  void linear(std::int64_t M, std::int64_t N, std::int64_t K) {
    const double flops = 2.0 * static_cast<double>(M * N * K);
    const std::string name = fmt::format("{} x {} x {}", M, N, K);
    time("matmul y  " + name, flops, [&] {
      multiply({.a = operands_.take({M, K}),
                .b = operands_.take({K, N}),
                .c = operands_.take({M, N}),
                .bias = f32_.take({N})});
    });
    time("matmul dx " + name, flops, [&] {
      multiply({.a = operands_.take({M, N}),
                .b = operands_.take({K, N}),
                .c = operands_.take({M, K}),
                .transpose_b = Transpose::yes});
    });
    time("matmul dW " + name, flops, [&] {
      multiply({.a = operands_.take({M, K}),
                .b = operands_.take({M, N}),
                .c = f32_.take({K, N}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes});
    });
  }

  // The output head's three products, with the table (V, C).
  void head(std::int64_t M, std::int64_t V, std::int64_t C) {
    const double flops = 2.0 * static_cast<double>(M * V * C);
    const std::string name = fmt::format("{} x {} x {}", M, V, C);
    time("head logits " + name, flops, [&] {
      multiply({.a = operands_.take({M, C}),
                .b = operands_.take({V, C}),
                .c = f32_.take({M, V}),
                .transpose_b = Transpose::yes});
    });
    time("head dx     " + name, flops, [&] {
      multiply(
          {.a = operands_.take({M, V}), .b = operands_.take({V, C}), .c = operands_.take({M, C})});
    });
    time("head dW     " + name, flops, [&] {
      multiply({.a = operands_.take({M, V}),
                .b = operands_.take({M, C}),
                .c = f32_.take({V, C}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes});
    });
  }

  void attention(const AttentionSize& size) {
    const double product = static_cast<double>(size.B * size.H * size.T * size.T * size.D);
    const std::string name = fmt::format("B {} T {} H {} D {}", size.B, size.T, size.H, size.D);
    const std::int64_t C = size.H * size.D;
    const int heads = static_cast<int>(size.H);
    const Tensor log_sum_exp = f32_.take({size.B, size.H, size.T});
    time("attention forward  " + name, 2.0 * product, [&] {
      attention_forward(stream_,
                        {.qkv = operands_.take({size.B, size.T, 3 * C}),
                         .output = operands_.take({size.B, size.T, C}),
                         .log_sum_exp = log_sum_exp,
                         .num_heads = heads});
    });
    time("attention backward " + name, 5.0 * product, [&] {
      attention_backward(stream_,
                         {.qkv = operands_.take({size.B, size.T, 3 * C}),
                          .output = operands_.take({size.B, size.T, C}),
                          .log_sum_exp = log_sum_exp,
                          .d_output = operands_.take({size.B, size.T, C}),
                          .d_qkv = operands_.take({size.B, size.T, 3 * C}),
                          .num_heads = heads});
    });
  }

  void cross_entropy(std::int64_t N, std::int64_t C, std::int64_t V) {
    std::vector<std::int32_t> targets(static_cast<std::size_t>(N));
    for (std::size_t n = 0; n < targets.size(); ++n) {
      targets[n] = static_cast<std::int32_t>(n * 7919 % static_cast<std::size_t>(V));
    }
    const ModelConfig config{.hidden = static_cast<int>(C), .vocab = static_cast<int>(V)};
    Parameters parameters(config, {.compute = dtype_});
    for (const Parameter& parameter : parameters.all()) {
      initialize(stream_, parameter, {0, parameter.weight.num_elements()}, parameter.weight, 1);
    }
    parameters.refresh_copies(stream_);
    const Head head(parameters, config);
    NoTensorSum sum;
    LossSum losses;
    const Pass pass{.stream = stream_,
                    .sum = &sum,
                    .batch = {.tokens = Tensor(std::span(targets)).reshaped({1, N}),
                              .targets = Tensor(std::span(targets))},
                    .accumulate = Accumulate::yes,
                    .losses = &losses};
    const double flops = 6.0 * static_cast<double>(N * V * C);
    time(fmt::format("cross entropy {} x {} x {}", N, C, V), flops, [&] {
      const Tensor x = operands_.take({N, C});
      head.add_loss(pass, x, {.d_x = operands_.take({N, C})});
    });
  }

  void multiply(const MatmulArgs& args) {
    options_.library == "onednn" ? cpu::matmul_by_onednn(stream_, args) : matmul(stream_, args);
  }

  void time(const std::string& name, double flops, const std::function<void()>& op) {
    if (name.find(options_.only) == std::string::npos) {
      return;
    }
    op();  // touches memory, makes oneDNN's code
    std::vector<double> rates;
    std::vector<double> shares;
    for (int pair = 0; pair < options_.pairs; ++pair) {
      const double peak = fma_peak_flops(stream_.pool());
      const auto begin = std::chrono::steady_clock::now();
      op();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      rates.push_back(flops / seconds.count());
      shares.push_back(rates.back() / peak);
    }
    const Spread share = spread(shares);
    fmt::print("{:<46} {:7.1f} GFLOP/s  {:5.1f} % of peak ({:.1f} .. {:.1f})\n",
               name,
               spread(rates).median * 1e-9,
               100 * share.median,
               100 * share.low,
               100 * share.high);
  }

  Options options_;
  DType dtype_;
  Ring operands_;
  Ring f32_;
  Stream stream_;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Times the matrix kernels against the FMA peak of the same run", "kernel_bench");
  Command app = line.root();
  app.option("--only", &options.only, "Only ops whose name contains this");
  app.option("--dtype", &options.dtype, "f32 or bf16", {.one_of = {"f32", "bf16"}});
  app.option("--library",
             &options.library,
             "Products by our own tiles, or all by oneDNN",
             {.one_of = {"own", "onednn"}});
  app.option("--threads", &options.threads, "Threads", {.limit = Limit::positive});
  app.option("--pairs", &options.pairs, "Timed pairs of peak and op", {.limit = Limit::positive});
  app.option("--tokens", &options.tokens, "Rows of a micro-batch", {.limit = Limit::positive});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  if (options.library == "onednn" && options.dtype == "bf16" && !cpu::onednn_multiplies_bf16()) {
    fmt::print(stderr, "kernel_bench: oneDNN has no bf16 products on this processor\n");
    return 2;
  }
  Bench(options).run();
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
