// Times codecs against a copy of the same f32 matrix by the same threads, measured right before
// each call of the same run: copy, encode, copy, decode, ... Matrices rotate through memory larger
// than the last cache. GB/s are bytes of the f32 matrix by time; a share is the time of the copy by
// that of the call, so 1 is as fast as the copy. 0.8 is what the project sets itself for casts and
// for scales of rows and groups; scales of columns, and of both, read the matrix twice.
//
//   codec_bench [--only "quantize 4"] [--threads N] [--pairs 9]

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "compress/codec.h"
#include "core/kernels/elementwise/elementwise.h"
#include "tools/bench/ring.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

struct Options {
  std::string only;
  int threads = default_num_threads();
  int pairs = 9;
};

// A line for each of these and each shape: add codecs here.
struct Row {
  std::string name;
  CodecSetting setting{};
};

std::vector<Row> rows() {
  std::vector<Row> all = {{"cast", {.kind = CodecKind::cast}}};
  for (const int bits : {8, 4, 3, 2}) {
    const auto add = [&](const char* scale, const CodecSetting& setting) {
      all.push_back({fmt::format("quantize {} {}", bits, scale), setting});
    };
    const CodecKind kind = CodecKind::quantize;
    add("channel", {.kind = kind, .bits = bits, .scale = ScaleOf::channel});
    add("token", {.kind = kind, .bits = bits, .scale = ScaleOf::token});
    add("group 128", {.kind = kind, .bits = bits, .scale = ScaleOf::group, .group = 128});
    add("group 32", {.kind = kind, .bits = bits, .scale = ScaleOf::group, .group = 32});
    add("tensor", {.kind = kind, .bits = bits, .scale = ScaleOf::tensor});
    add("both", {.kind = kind, .bits = bits, .scale = ScaleOf::both});
    add("token random",
        {.kind = kind, .bits = bits, .scale = ScaleOf::token, .rounding = Rounding::stochastic});
  }
  for (const double ratio : {0.01, 0.1}) {
    for (const DType values : {DType::f32, DType::bf16}) {
      all.push_back({fmt::format("top_k {} {}", ratio, name_of(values)),
                     {.kind = CodecKind::top_k, .ratio = ratio, .values = values}});
    }
  }
  return all;
}

std::unique_ptr<Codec> codec_for(const CodecSetting& setting, const MatrixShape& shape) {
  return make_codec(setting, {{.name = "bench", .shape = shape}}, 1);
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        stream_({.num_threads = options.threads, .workspace_bytes = std::size_t{1} << 30U}) {}

  void run(const Row& row, const MatrixShape& shape) {
    const auto codec = codec_for(row.setting, shape);
    const Shape dims{shape.rows, shape.columns};
    const Shape frame_dims{static_cast<std::int64_t>(codec->frame_bytes())};
    const auto matrix = [&] { return Codec::Matrices{matrices_.take(DType::f32, dims)}; };
    const auto frame = [&] { return frames_.take(DType::u8, frame_dims); };
    const Tensor sent = frame();
    codec->encode(stream_, matrix(), {}, key(), sent);
    const std::vector<std::function<void()>> calls = {
        [&] { codec->encode(stream_, matrix(), {}, key(), frame()); },
        [&] { codec->decode(stream_, sent, matrix(), false); },
        [&] { codec->decode(stream_, sent, matrix(), true); },
        [&] { codec->encode(stream_, matrix(), matrix(), key(), frame()); },
        [&] { codec->settle(stream_, sent, matrix()); }};
    const std::vector<const char*> names = {
        "encode", "decode", "decode and add", "encode with residual", "settle"};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      compare(
          fmt::format("{:<22} {:>5} x {:<5} {:<20}", row.name, shape.rows, shape.columns, names[i]),
          dims,
          calls[i]);
    }
  }

 private:
  MessageKey key() { return {.seed = 1, .step = ++step_}; }

  void compare(const std::string& name, const Shape& dims, const std::function<void()>& call) {
    const double bytes = static_cast<double>(dims.num_elements()) * sizeof(float);
    std::vector<double> copies;
    std::vector<double> times;
    std::vector<double> shares;
    const auto copy = [&] {
      const Tensor from = matrices_.take(DType::f32, dims);
      cast(stream_, from, matrices_.take(DType::f32, dims));
    };
    copy();
    call();
    for (int pair = 0; pair < options_.pairs; ++pair) {
      copies.push_back(seconds_of(copy));
      times.push_back(seconds_of(call));
      shares.push_back(copies.back() / times.back());
    }
    const Spread share = spread(shares);
    const double seconds = spread(times).median;
    fmt::print("{} {:8.3f} ms {:6.1f} GB/s  copy {:6.1f} GB/s  share {:.2f} ({:.2f} .. {:.2f})\n",
               name,
               1e3 * seconds,
               1e-9 * bytes / seconds,
               1e-9 * bytes / spread(copies).median,
               share.median,
               share.low,
               share.high);
    std::fflush(stdout);
  }

  Options options_;
  Stream stream_;
  Ring matrices_;
  Ring frames_;
  std::uint64_t step_ = 0;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Times codecs against copies of the same matrices", "codec_bench");
  Command app = line.root();
  app.option("--only", &options.only, "Only codecs whose name begins so");
  app.option("--threads", &options.threads, "", {.limit = Limit::positive, .most = 1024});
  app.option("--pairs",
             &options.pairs,
             "Pairs of copy and call",
             {.limit = Limit::positive, .most = 1000});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  fmt::print("{} threads; medians of {} pairs (lowest .. highest share)\n",
             options.threads,
             options.pairs);
  Bench bench(options);
  for (const Row& row : rows()) {
    if (row.name.starts_with(options.only)) {
      bench.run(row, {.rows = 4096, .columns = 1024});
      bench.run(row, {.rows = 1024, .columns = 768});
    }
  }
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
