// What messages between stages cost, for the messages of three GPTs cut over 8 tensor ranks (2.5B,
// 8.3B and 175B parameters, 8 sequences) and a small one. Prints markdown tables:
//
//   throughput  low_rank with error feedback, ranks 8 to 40: bytes of the f32 matrix by the time of
//               compression (encode and settle), of what of it comes before the frame is sent
//               (encode), and of decompression; one untimed call first.
//   costs       every codec: bytes, times, floors, and the speed of a link below which the message
//               arrives sooner compressed: (raw - sent) bytes / (encode + decode) seconds. The
//               residual is settled when the frame is on its way, so that is not in the sum.
//
// A floor is the time of the bytes that must move, at the rate of a copy of the same matrix (8
// bytes an element), or of the operations at the FMA peak where that is longer. Copy, peak, encode,
// settle and decode take turns, and memory larger than the last cache is used in turn.
//
//   message_bench throughput|costs [--threads N] [--calls 9]

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "core/kernels/elementwise/elementwise.h"
#include "tools/bench/fma_peak.h"
#include "tools/bench/ring.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

struct Message {
  const char* model = "";
  MatrixShape shape{};
};

constexpr std::array<Message, 4> kMessages = {{{"2.5B", {1024, 1920}},
                                               {"8.3B", {1024, 3072}},
                                               {"175B", {2048, 12288}},
                                               {"small", {256, 208}}}};
constexpr std::size_t kPublished = 3;  // the first of them

struct Options {
  std::string table;
  int threads = default_num_threads();
  int calls = 9;
};

CodecSetting low_rank(int rank) {
  return {.kind = CodecKind::low_rank, .error_feedback = ErrorFeedback::lazy, .rank = rank};
}

std::vector<CodecSetting> settings() {
  std::vector<CodecSetting> all;
  for (const int rank : {4, 16, 32}) {
    all.push_back(low_rank(rank));
  }
  const auto lazy = ErrorFeedback::lazy;
  all.push_back({.kind = CodecKind::top_k, .error_feedback = lazy, .ratio = 0.01});
  all.push_back({.kind = CodecKind::top_k, .error_feedback = lazy, .ratio = 0.1});
  all.push_back({.kind = CodecKind::random_k, .error_feedback = lazy, .ratio = 0.01});
  for (const int bits : {8, 4, 3, 2}) {
    all.push_back({.kind = CodecKind::quantize, .bits = bits});
  }
  all.push_back({.kind = CodecKind::cast});
  return all;
}

struct Work {
  double bytes = 0.0;
  double operations = 0.0;
};

// Encoding reads the matrix, reads and writes the residual if there is one, writes the frame.
// low_rank multiplies by the matrix twice, quantize finds the columns' scales first.
Work encode_work(const CodecSetting& setting, const MatrixShape& shape) {
  const auto elements = static_cast<double>(shape.num_elements());
  const auto payload = static_cast<double>(payload_bytes(setting, shape));
  const double residual = setting.error_feedback == ErrorFeedback::none ? 0.0 : 8.0 * elements;
  const bool reads_twice =
      setting.kind == CodecKind::low_rank || setting.kind == CodecKind::quantize;
  const double rank =
      setting.kind == CodecKind::low_rank ? static_cast<double>(factor_rank(setting, shape)) : 0.0;
  return {.bytes = (reads_twice ? 8.0 : 4.0) * elements + residual + payload,
          .operations = 4.0 * rank * (elements + rank * static_cast<double>(shape.rows))};
}

Work decode_work(const CodecSetting& setting, const MatrixShape& shape) {
  const auto elements = static_cast<double>(shape.num_elements());
  const double rank =
      setting.kind == CodecKind::low_rank ? static_cast<double>(factor_rank(setting, shape)) : 0.0;
  return {.bytes = 4.0 * elements + static_cast<double>(payload_bytes(setting, shape)),
          .operations = 2.0 * rank * elements};
}

// Medians, in seconds.
struct Times {
  double raw_bytes = 0.0;
  double sent_bytes = 0.0;
  double copy = 0.0;
  double encode = 0.0;
  double settle = 0.0;  // 0 without error feedback
  double decode = 0.0;
  double peak = 0.0;  // operations a second

  [[nodiscard]] double floor(const Work& work) const {
    return std::max(work.bytes * copy / (2.0 * raw_bytes), work.operations / peak);
  }
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  Times time(const CodecSetting& setting, const MatrixShape& shape) {
    const auto codec = make_codec(setting, {{.name = "bench", .shape = shape}}, 1);
    Stream stream({.name = "bench",
                   .num_threads = options_.threads,
                   .workspace_bytes = codec->workspace_bytes(options_.threads)});
    const Shape dims{shape.rows, shape.columns};
    const bool feedback = setting.error_feedback != ErrorFeedback::none;
    std::vector<double> copies;
    std::vector<double> encodes;
    std::vector<double> settles;
    std::vector<double> decodes;
    std::vector<double> peaks;
    for (int call = 0; call <= options_.calls; ++call) {
      const Tensor values = values_.take(DType::f32, dims);
      const Tensor out = outputs_.take(DType::f32, dims);
      const Tensor frame =
          frames_.take(DType::u8, {static_cast<std::int64_t>(codec->frame_bytes())});
      Codec::Matrices owed;
      if (feedback) {
        owed = {residuals_.take(DType::f32, dims)};
      }
      const MessageKey key{.seed = 1, .step = static_cast<std::uint64_t>(call)};
      peaks.push_back(fma_peak_flops(stream.pool()));
      copies.push_back(seconds_of(
          [&] { cast(stream, values_.take(DType::f32, dims), outputs_.take(DType::f32, dims)); }));
      encodes.push_back(seconds_of([&] { codec->encode(stream, {values}, owed, key, frame); }));
      settles.push_back(seconds_of([&] { codec->settle(stream, frame, owed); }));
      decodes.push_back(seconds_of([&] { codec->decode(stream, frame, {out}, false); }));
    }
    const auto median = [](const std::vector<double>& values) {
      return spread({values.begin() + 1, values.end()}).median;  // without the untimed call
    };
    return {.raw_bytes = static_cast<double>(shape.num_elements() * sizeof(float)),
            .sent_bytes = static_cast<double>(codec->frame_bytes()),
            .copy = median(copies),
            .encode = median(encodes),
            .settle = feedback ? median(settles) : 0.0,
            .decode = median(decodes),
            .peak = median(peaks)};
  }

 private:
  Options options_;
  Ring values_;
  Ring residuals_;
  Ring outputs_;
  Ring frames_;
};

std::string name_of_shape(const Message& message) {
  return fmt::format("{} ({} x {})", message.model, message.shape.rows, message.shape.columns);
}

void print_throughput(Bench& bench) {
  fmt::print(
      "| message | rank | ratio | compression | before sending | decompression | copy |\n"
      "|---|---|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < kPublished; ++i) {
    const Message& message = kMessages[i];
    for (int rank = 8; rank <= 40; rank += 4) {
      const Times times = bench.time(low_rank(rank), message.shape);
      const auto rate = [&](double seconds) { return 1e-9 * times.raw_bytes / seconds; };
      fmt::print("| {} | {} | {:.1f} | {:.2f} GB/s | {:.2f} GB/s | {:.2f} GB/s | {:.1f} GB/s |\n",
                 name_of_shape(message),
                 rank,
                 times.raw_bytes / times.sent_bytes,
                 rate(times.encode + times.settle),
                 rate(times.encode),
                 rate(times.decode),
                 rate(times.copy));
      std::fflush(stdout);
    }
  }
}

std::string link_speed(double bytes_a_second) {
  const double bits = 8.0 * bytes_a_second;
  return bits >= 1e9 ? fmt::format("{:.1f} Gb/s", 1e-9 * bits)
                     : fmt::format("{:.0f} Mb/s", 1e-6 * bits);
}

std::string milliseconds(double seconds) {
  return seconds == 0.0 ? "-" : fmt::format("{:.3f} ms", 1e3 * seconds);
}

void print_costs(Bench& bench) {
  for (const Message& message : kMessages) {
    fmt::print("\n{}, {} bytes:\n\n",
               name_of_shape(message),
               message.shape.num_elements() * sizeof(float));
    fmt::print(
        "| codec | sent | encode | floor | settle | decode | floor | pays below |\n"
        "|---|---|---|---|---|---|---|---|\n");
    for (const CodecSetting& setting : settings()) {
      const Times times = bench.time(setting, message.shape);
      fmt::print("| {} | {:.0f} | {} | {} | {} | {} | {} | {} |\n",
                 short_text(setting),
                 times.sent_bytes,
                 milliseconds(times.encode),
                 milliseconds(times.floor(encode_work(setting, message.shape))),
                 milliseconds(times.settle),
                 milliseconds(times.decode),
                 milliseconds(times.floor(decode_work(setting, message.shape))),
                 link_speed((times.raw_bytes - times.sent_bytes) / (times.encode + times.decode)));
      std::fflush(stdout);
    }
  }
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("Times compressed messages between stages", "message_bench");
  Command app = line.root();
  app.option("table", &options.table, "", {.required = true, .one_of = {"throughput", "costs"}});
  app.option("--threads", &options.threads, "", {.limit = Limit::positive, .most = 1024});
  app.option(
      "--calls", &options.calls, "Timed calls of each", {.limit = Limit::positive, .most = 1000});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  Bench bench(options);
  options.table == "costs" ? print_costs(bench) : print_throughput(bench);
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
