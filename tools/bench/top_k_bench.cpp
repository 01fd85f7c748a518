// Times the selection of the 1 % and 0.1 % largest of 124.4M elements (GPT-2's gradients) against
// one read of the same data, a sum in vectors with the same threads, in turns in the same run. 2.4
// is the limit the project sets itself for the ratio at 1 %. Two kinds of data: normal numbers, and
// a mix like a gradient's: tensors of very different scale, heavy tails, rows of zeros.
// Then the sparse codecs on a message of 1024 x 1920.
//
//   top_k_bench [--pairs 9] [--threads N]

#include <cmath>
#include <memory>
#include <vector>

#include <fmt/core.h>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/kernels/sparse/top_k.h"
#include "core/kernels/parallel_ranges.h"
#include "core/kernels/simd.h"
#include "core/rng.h"
#include "tools/bench/timing.h"
#include "tools/cli/command_line.h"

namespace slackline {

namespace {

namespace hn = simd::hn;

constexpr std::size_t kGradientElements = 124'439'808;
constexpr std::size_t kReadPerTask = 65536;
constexpr std::size_t kSums = 4;  // independent, to hide the latency of the sum
constexpr std::size_t kPrefetchedElements = 512;
constexpr MatrixShape kMessage{.rows = 1024, .columns = 1920};

struct Settings {
  int num_pairs = 9;
  int num_threads = default_num_threads();
};

Tensor row_of(const Buffer& buffer, DType dtype, std::size_t count) {
  return buffer.view(dtype, {static_cast<std::int64_t>(count)});
}

void fill_normal(StreamView stream, std::span<float> values) {
  const PhiloxKey key = philox_key(1, "normal");
  parallel_ranges(stream, values.size(), kReadPerTask, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; i += 2) {
      const auto pair = normal_pair(key, i / 2);
      values[i] = static_cast<float>(pair[0]);
      values[std::min(i + 1, end - 1)] = static_cast<float>(pair[1]);
    }
  });
}

// Makes normal numbers a gradient-like mix: a third (the table of tokens) has rows of 768 of which
// most are zero, the rest are tensors of 2^20 whose scales differ by up to e^8; tails as x^3.
void make_heavy_tailed(StreamView stream, std::span<float> values) {
  const PhiloxKey key = philox_key(1, "mix");
  parallel_ranges(stream, values.size(), kReadPerTask, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const bool in_table = i < values.size() / 3;
      const double draw = uniform_number(key, in_table ? i / 768 : i >> 20U);
      const double scale = in_table ? (draw < 0.9 ? 0.0 : draw) : std::exp(-8.0 * draw);
      values[i] = static_cast<float>(scale) * values[i] * values[i] * values[i];
    }
  });
}

double sum_of(StreamView stream, std::span<const float> values) {
  std::vector<float> sums((values.size() + kReadPerTask - 1) / kReadPerTask);
  parallel_ranges(stream, values.size(), kReadPerTask, [&](std::size_t begin, std::size_t end) {
    simd::Floats parts[kSums] = {simd::zero(), simd::zero(), simd::zero(), simd::zero()};
    std::size_t i = begin;
    for (; i + kSums * simd::kLanes <= end; i += kSums * simd::kLanes) {
      for (std::size_t k = 0; k < kSums; ++k) {
        const float* from = &values[i] + k * simd::kLanes;
        hwy::Prefetch(from + kPrefetchedElements);
        parts[k] = hn::Add(parts[k], simd::load(from));
      }
    }
    const simd::Floats sum = hn::Add(hn::Add(parts[0], parts[1]), hn::Add(parts[2], parts[3]));
    sums[begin / kReadPerTask] = simd::sum_lanes(sum);
  });
  double total = 0.0;
  for (const float sum : sums) {
    total += sum;
  }
  return total;
}

void compare(const char* name, Stream& stream, const Tensor& values, double share, int num_pairs) {
  const auto k = static_cast<std::size_t>(share * static_cast<double>(values.num_elements()));
  const Buffer indices("indices", k * sizeof(std::uint32_t));
  const Buffer kept("kept", k * sizeof(float));
  double total = 0.0;
  const auto read = [&] { total += sum_of(stream, values.span<float>()); };
  const auto select = [&] {
    top_k(stream, values, row_of(indices, DType::u32, k), row_of(kept, DType::f32, k));
  };
  read();
  select();
  std::vector<double> read_seconds;
  std::vector<double> select_seconds;
  std::vector<double> ratios;
  for (int pair = 0; pair < num_pairs; ++pair) {
    read_seconds.push_back(seconds_of(read));
    select_seconds.push_back(seconds_of(select));
    ratios.push_back(select_seconds.back() / read_seconds.back());
  }
  const Spread ratio = spread(ratios);
  fmt::print(
      "{:12} {:5.1f} %   read {:6.2f} ms {:5.1f} GB/s   top_k {:6.2f} ms   "
      "ratio {:.2f} ({:.2f} .. {:.2f}) of {} pairs   (sum {:g})\n",
      name,
      100.0 * share,
      1e3 * spread(read_seconds).median,
      1e-9 * static_cast<double>(values.bytes()) / spread(read_seconds).median,
      1e3 * spread(select_seconds).median,
      ratio.median,
      ratio.low,
      ratio.high,
      num_pairs,
      total);
}

void compare_selections(const Settings& settings) {
  const std::size_t workspace =
      top_k_workspace_bytes(kGradientElements, kGradientElements / 100, settings.num_threads);
  Stream stream(
      {.name = "bench", .num_threads = settings.num_threads, .workspace_bytes = workspace});
  const Buffer data("data", kGradientElements * sizeof(float));
  const Tensor values = row_of(data, DType::f32, kGradientElements);
  fmt::print("{} elements, {} threads, {:.1f} MB of scratch\n",
             kGradientElements,
             settings.num_threads,
             1e-6 * static_cast<double>(workspace));
  fill_normal(stream, values.span<float>());
  compare("normal", stream, values, 0.01, settings.num_pairs);
  compare("normal", stream, values, 0.001, settings.num_pairs);
  make_heavy_tailed(stream, values.span<float>());
  compare("heavy-tailed", stream, values, 0.01, settings.num_pairs);
  compare("heavy-tailed", stream, values, 0.001, settings.num_pairs);
}

struct MessageTimes {
  std::vector<double> read{};
  std::vector<double> encode{};
  std::vector<double> settle{};
  std::vector<double> decode{};
  double total = 0.0;  // of what was read
};

// What a codec is timed on.
struct CodecData {
  Tensor values{};
  Tensor residual{};
  Tensor out{};
  Tensor frame{};
};

MessageTimes time_messages(Codec& codec, Stream& stream, const CodecData& data, int num_messages) {
  MessageTimes times;
  for (int i = 0; i < num_messages; ++i) {
    const MessageKey key{.step = static_cast<std::uint64_t>(i)};
    times.read.push_back(
        seconds_of([&] { times.total += sum_of(stream, data.values.span<float>()); }));
    times.encode.push_back(
        seconds_of([&] { codec.encode(stream, {data.values}, {data.residual}, key, data.frame); }));
    times.settle.push_back(seconds_of([&] { codec.settle(stream, data.frame, {data.residual}); }));
    times.decode.push_back(
        seconds_of([&] { codec.decode(stream, data.frame, {data.out}, false); }));
  }
  return times;
}

// Encode with a residual, settle and decode of one message.
void time_codec(const Settings& settings, CodecKind kind, double ratio) {
  const CodecSetting setting{
      .kind = kind, .error_feedback = ErrorFeedback::immediate, .ratio = ratio};
  const CodecPart part{.name = "bench", .shape = kMessage};
  const std::unique_ptr<Codec> codec = make_codec(setting, {part}, 1);
  Stream stream({.name = "bench",
                 .num_threads = settings.num_threads,
                 .workspace_bytes = codec->workspace_bytes(settings.num_threads)});
  const std::size_t count = kMessage.num_elements();
  const Buffer data("data", count * sizeof(float));
  Buffer owed("residual", count * sizeof(float));
  Buffer out("out", count * sizeof(float));
  const Buffer bytes("frame", codec->frame_bytes());
  const CodecData tensors{.values = row_of(data, DType::f32, count),
                          .residual = row_of(owed, DType::f32, count),
                          .out = row_of(out, DType::f32, count),
                          .frame = row_of(bytes, DType::u8, codec->frame_bytes())};
  fill_normal(stream, tensors.values.span<float>());
  owed.fill_zero();
  out.fill_zero();
  const MessageTimes times = time_messages(*codec, stream, tensors, 3 * settings.num_pairs);
  fmt::print(
      "{:12}  {} x {} -> {} bytes   read {:.3f} ms  encode {:.3f} ms  settle {:.3f} ms  "
      "decode {:.3f} ms   (sum {:g})\n",
      short_text(setting),
      kMessage.rows,
      kMessage.columns,
      codec->frame_bytes(),
      1e3 * spread(times.read).median,
      1e3 * spread(times.encode).median,
      1e3 * spread(times.settle).median,
      1e3 * spread(times.decode).median,
      times.total);
}

int run(int argc, char** argv) {
  Settings settings;
  CommandLine line("Times top_k against one read of its data, and the sparse codecs",
                   "top_k_bench");
  Command app = line.root();
  app.option("--pairs",
             &settings.num_pairs,
             "Interleaved pairs of read and selection",
             {.limit = Limit::positive, .most = 1000});
  app.option("--threads", &settings.num_threads, "", {.limit = Limit::positive, .most = 1024});
  if (!line.parse(argc, argv)) {
    return 0;
  }
  compare_selections(settings);
  for (const double ratio : {0.01, 0.1}) {
    time_codec(settings, CodecKind::top_k, ratio);
    time_codec(settings, CodecKind::random_k, ratio);
  }
  return 0;
}

}  // namespace

}  // namespace slackline

int main(int argc, char** argv) {
  return slackline::bench_main(slackline::run, argc, argv);
}
