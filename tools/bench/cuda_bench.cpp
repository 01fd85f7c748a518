// Times ops and codecs on the CUDA device against what bounds them: what waits for memory against a
// copy of as many bytes, measured right before each op of the same run, and products against the
// card's dense peak. Operands rotate through memory larger than the last cache. A share is the
// bound's time by the op's, median of `pairs` (lowest .. highest); bytes are what the op has to
// move, as its header says. Rows "chosen ..." compare products of GPT-2 124M and 1.5B with the best
// of up to 32 algorithms that cuBLASLt suggests for each; nothing where cuBLASLt is emulated.
//
//   cuda_bench [--only "layer norm"] [--pairs 9] [--tokens 16384] [--hidden 768]
//              [--gradients 124439808]

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "compress/codec.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/matmul_products.h"
#include "core/host_tensor.h"
#include "core/kernels/accumulate.h"
#include "core/kernels/adamw.h"
#include "core/kernels/attention.h"
#include "core/kernels/bias_gradient.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/gelu.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/matmul.h"
#include "core/kernels/sum_of_squares.h"
#include "core/rng.h"
#include "core/stream_times.h"
#include "tools/bench/timing.h"
#include "tools/card_peak.h"

namespace slackline {

namespace {

struct Options {
  std::string only;
  int pairs = 9;
  std::int64_t tokens = 16384;
  std::int64_t hidden = 768;
  std::int64_t gradients = 124439808;  // of GPT-2 124M
  bool peak = false;
};

// Device memory from which tensors are taken in turn, normal numbers at first.
class DeviceRing {
 public:
  explicit DeviceRing(std::size_t bytes) : memory_("ring", bytes, Backing::cuda) {
    const Shape all{static_cast<std::int64_t>(bytes / sizeof(float))};
    const HostTensor host(memory_.view(DType::f32, all), HostTensor::Contents::undefined);
    const std::span<float> values = host.tensor().span<float>();
    constexpr std::size_t kPattern = std::size_t{1} << 20U;
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = i < kPattern ? static_cast<float>(normal_pair({1, 2}, i / 2)[i % 2])
                               : values[i - kPattern];
    }
    host.write_back();
  }

  // As bf16 their upper halves are normal numbers too, and the lower ones finite.
  Tensor take(DType dtype, const Shape& shape) {
    const std::size_t bytes = Arena::aligned_bytes(dtype, shape);
    SL_CHECK(bytes <= memory_.bytes(), std::to_string(bytes) + " bytes");
    used_ = used_ + bytes > memory_.bytes() ? 0 : used_;
    const Tensor tensor = memory_.view(dtype, shape, used_);
    used_ += bytes;
    return tensor;
  }

 private:
  Buffer memory_;
  std::size_t used_ = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        ring_(std::size_t{options.tokens > 4096 ? 6U : 1U} << 30U),
        stream_({.device = Device::cuda, .workspace_bytes = std::size_t{1} << 30U}) {}

  void run() {
    fmt::print("{}\n", cuda::device_text());
    for (const DType dtype : {DType::bf16, DType::f32}) {
      memory_bound(dtype);
    }
    optimizer();
    for (const DType dtype : {DType::bf16, DType::f32}) {
      products(dtype);
      attention(dtype);
      for (const std::int64_t C : {768, 1600}) {
        algorithms(dtype, C);
      }
    }
    codecs();
    top_k_of_all_gradients();
  }

 private:
  [[nodiscard]] Shape rows() const { return {options_.tokens, options_.hidden}; }

  void memory_bound(DType dtype) {
    const std::string kind(name_of(dtype));
    const std::int64_t N = options_.tokens;
    const std::int64_t C = options_.hidden;
    const auto take = [&](const Shape& shape) { return ring_.take(dtype, shape); };
    const double row = static_cast<double>(rows().num_elements() * size_of(dtype));
    const Tensor scale = ring_.take(DType::f32, {C});
    const Tensor shift = ring_.take(DType::f32, {C});
    const Tensor mean = ring_.take(DType::f32, {N});
    const Tensor rstd = ring_.take(DType::f32, {N});
    against_copy("layer norm forward " + kind, 2 * row, [&] {
      layer_norm_forward(stream_,
                         {.x = take(rows()),
                          .weight = scale,
                          .bias = shift,
                          .y = take(rows()),
                          .mean = mean,
                          .rstd = rstd});
    });
    against_copy(
        "add " + kind, 3 * row, [&] { add(stream_, take(rows()), take(rows()), take(rows())); });
    against_copy("gelu forward " + kind, 2 * row, [&] {
      gelu_forward(stream_, take(rows()), take(rows()));
    });
    against_copy(
        "bias gradient " + kind, row, [&] { bias_gradient(stream_, take(rows()), shift); });
  }

  void optimizer() {
    const Shape shape{options_.hidden * 4, options_.hidden * 12};
    const auto take = [&] { return ring_.take(DType::f32, shape); };
    const auto elements = static_cast<double>(shape.num_elements());
    const Tensor m = ring_.take(DType::f32, shape);
    const Tensor v = ring_.take(DType::f32, shape);
    fill_zero(stream_, m);
    fill_zero(stream_, v);
    against_copy("adamw with a bf16 copy", 30 * elements, [&] {
      adamw(stream_,
            {.weight = take(),
             .gradient = take(),
             .m = m,
             .v = v,
             .weight_copy = ring_.take(DType::bf16, shape)},
            {.lr = 1e-4});
    });
    against_copy("sum of squares", 4 * elements, [&] {
      static_cast<void>(sum_of_squares(stream_, take()));
    });
    against_copy("accumulate", 12 * elements, [&] { accumulate(stream_, take(), take()); });
  }

  void products(DType dtype) {
    const std::int64_t M = options_.tokens;
    const std::int64_t C = options_.hidden;
    for (const auto& [N, K] : {std::pair{C, C}, {3 * C, C}, {4 * C, C}, {C, 4 * C}}) {
      const double flops = 2.0 * static_cast<double>(M * N * K);
      const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, N, K);
      against_peak("product y  " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, K}),
                .b = ring_.take(dtype, {K, N}),
                .c = ring_.take(dtype, {M, N}),
                .bias = ring_.take(DType::f32, {N})});
      });
      against_peak("product dx " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, N}),
                .b = ring_.take(dtype, {K, N}),
                .c = ring_.take(dtype, {M, K}),
                .transpose_b = Transpose::yes});
      });
      against_peak("product dW " + shape, dtype, flops, [&, N = N, K = K] {
        matmul(stream_,
               {.a = ring_.take(dtype, {M, K}),
                .b = ring_.take(dtype, {M, N}),
                .c = ring_.take(DType::f32, {K, N}),
                .transpose_a = Transpose::yes,
                .accumulate = Accumulate::yes});
      });
      against_peak("product dW and db " + shape, dtype, flops, [&, N = N, K = K] {
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

  // Of the four weights of a layer of width C.
  void algorithms(DType dtype, std::int64_t C) {
    const std::int64_t M = options_.tokens;
    for (const auto& [in, out] : {std::pair{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}}) {
      const std::string shape = fmt::format("{} {} x {} x {}", name_of(dtype), M, out, in);
      const auto row = [&, in = in, out = out](const std::string& name, auto make_args) {
        against_suggestions(fmt::format("chosen {}{}", name, shape),
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
    const std::int64_t T = std::min<std::int64_t>(1024, options_.tokens);
    const std::int64_t B = options_.tokens / T;
    const std::int64_t H = options_.hidden / kColumns;
    const double product = static_cast<double>(B * H * T * T * kColumns);
    const Tensor sums = ring_.take(DType::f32, {B, H, T});
    const auto take = [&](std::int64_t columns) {
      return ring_.take(dtype, {B, T, columns * H * kColumns});
    };
    const std::string kind(name_of(dtype));
    const int heads = static_cast<int>(H);
    against_peak("attention forward  " + kind, dtype, 2 * product, [&] {
      attention_forward(
          stream_, {.qkv = take(3), .output = take(1), .log_sum_exp = sums, .num_heads = heads});
    });
    against_peak("attention backward " + kind, dtype, 5 * product, [&] {
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
      against_copy(stream, "encode " + name, 12 * elements, [&, codec = codec.get()] {
        codec->encode(stream, matrices(), matrices(), {.seed = 1, .step = ++step}, sent);
      });
      against_copy(stream, "decode " + name, 4 * elements, [&, codec = codec.get()] {
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
    against_copy(stream, "encode top-k 1 % of all gradients", bytes, [&] {
      codec->encode(stream, take(), take(), {.seed = 1, .step = ++step}, sent);
    });
  }

  [[nodiscard]] double seconds(StreamView stream, const std::function<void()>& op) {
    times_.restart(stream, 0.0);
    const std::size_t begin = times_.mark(stream, 0.0);
    op();
    const std::size_t end = times_.mark(stream, 0.0);
    stream.synchronize();
    return times_.seconds(end) - times_.seconds(begin);
  }

  void against_copy(const std::string& name, double bytes, const std::function<void()>& op) {
    against_copy(stream_, name, bytes, op);
  }

  void against_copy(StreamView stream,
                    const std::string& name,
                    double bytes,
                    const std::function<void()>& op) {
    if (name.find(options_.only) == std::string::npos) {
      return;
    }
    const Shape copied{static_cast<std::int64_t>(bytes / 2)};
    std::vector<double> times;
    std::vector<double> shares;
    op();
    for (int pair = 0; pair < options_.pairs; ++pair) {
      const double copy = seconds(stream, [&] {
        cast(stream, ring_.take(DType::u8, copied), ring_.take(DType::u8, copied));
      });
      times.push_back(seconds(stream, op));
      shares.push_back(copy / times.back());
    }
    const double median = spread(times).median;
    fmt::print("{:<44} {:9.4f} ms {:8.1f} GB/s {:6.2f} of a copy's speed ({:.2f} .. {:.2f})\n",
               name,
               1e3 * median,
               1e-9 * bytes / median,
               spread(shares).median,
               spread(shares).low,
               spread(shares).high);
    std::fflush(stdout);
  }

  void against_suggestions(const std::string& name,
                           double flops,
                           const std::function<MatmulArgs()>& make_args) {
    constexpr int kSuggestions = 32;
    if (name.find(options_.only) == std::string::npos) {
      return;
    }
    const std::optional<cuda::ProductTimes> times =
        cuda::product_times(stream_, make_args(), kSuggestions);
    if (!times) {
      return;
    }
    fmt::print(
        "{:<44} {:9.4f} ms {:8.1f} TFLOP/s {:6.2f} of the best of {}'s speed (the first {:.2f})\n",
        name,
        1e3 * times->ours,
        1e-12 * flops / times->ours,
        times->best / times->ours,
        times->num_suggestions,
        times->best / times->first);
    std::fflush(stdout);
  }

  void against_peak(const std::string& name,
                    DType dtype,
                    double flops,
                    const std::function<void()>& op) {
    if (name.find(options_.only) == std::string::npos) {
      return;
    }
    std::vector<double> times(static_cast<std::size_t>(options_.pairs));
    op();
    for (double& time : times) {
      time = seconds(stream_, op);
    }
    const double median = spread(times).median;
    const double peak = dense_peak_flops(cuda::device_text(), dtype);
    const std::string share =
        peak > 0.0 ? fmt::format("{:5.1f} % of the dense peak", 100 * flops / median / peak)
                   : "the card's peak is not known";
    fmt::print("{:<44} {:9.4f} ms {:8.1f} TFLOP/s {}\n",
               name,
               1e3 * median,
               1e-12 * flops / median,
               share);
    std::fflush(stdout);
  }

  Options options_;
  DeviceRing ring_;
  Stream stream_;
  StreamTimes times_;
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Times ops and codecs on the CUDA device against what bounds them");
  app.add_option("--only", options.only, "Only ops whose name contains this");
  app.add_option("--pairs", options.pairs, "Timed pairs of bound and op")
      ->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens, "Rows of a micro-batch")->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden, "Width of the model, a multiple of 64")
      ->check(CLI::PositiveNumber);
  app.add_option("--gradients", options.gradients, "Elements of the message of all gradients")
      ->check(CLI::PositiveNumber);
  app.add_flag("--peak", options.peak, "Print the card's dense bf16 peak, 0 if unknown, and end");
  CLI11_PARSE(app, argc, argv);
  cuda::use_device(0);
  if (options.peak) {
    fmt::print("{}\n", dense_peak_flops(cuda::device_text(), DType::bf16));
    return 0;
  }
  Bench(options).run();
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
