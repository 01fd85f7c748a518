#include <algorithm>
#include <cmath>
#include <set>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "compress/frame.h"
#include "core/error.h"
#include "core/rehearsal_clock.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

const std::vector<CodecPart> kOddParts = {{.name = "a", .shape = {5, 33}},  // odd sizes and offsets
                                          {.name = "b", .shape = {1, 7}},
                                          {.name = "c", .shape = {64, 130}}};
constexpr MessageKey kKey{.seed = 1, .step = 2, .micro_batch = 3};
constexpr std::size_t kWorkspace = std::size_t{1} << 22U;

std::vector<CodecSetting> settings() {
  std::vector<CodecSetting> all;
  for (const int bits : {2, 3, 4, 8}) {
    for (const ScaleOf scale :
         {ScaleOf::channel, ScaleOf::token, ScaleOf::group, ScaleOf::tensor, ScaleOf::both}) {
      for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        all.push_back({.kind = CodecKind::quantize,
                       .bits = bits,
                       .scale = scale,
                       .group = 32,
                       .rounding = rounding});
        all.push_back(all.back());
        all.back().units = Units::moments;
      }
    }
  }
  return all;
}

Message message_of(std::uint64_t seed, double deviation = 1.0) {
  return Message::normal_numbers(kOddParts, seed + 1, deviation);
}

// A codec with the second moments that it may read.
class MadeCodec {
 public:
  explicit MadeCodec(const CodecSetting& setting) {
    std::vector<CodecPart> parts = kOddParts;
    for (std::size_t m = 0; m < parts.size(); ++m) {
      std::vector<double> squares = moments_.values(m);
      for (double& value : squares) {
        value *= value;
      }
      moments_.tensor(m).set(squares);
      parts[m].moments = moments_.tensor(m).view();
    }
    codec_ = make_codec(setting, std::move(parts), 0, test_device());
  }

  Codec* operator->() const { return codec_.get(); }

  Codec& operator*() const { return *codec_; }

 private:
  Message moments_ = message_of(7);
  std::unique_ptr<Codec> codec_{};
};

MadeCodec make(const CodecSetting& setting) {
  return MadeCodec(setting);
}

}  // namespace

TEST_CASE("a quantized frame has the bytes of the formula, and stays within them") {
  Stream stream(test_stream(2, kWorkspace));
  for (const CodecSetting& setting : settings()) {
    const auto codec = make(setting);
    REQUIRE(codec->frame_bytes() == frame_bytes(setting, kOddParts));
    REQUIRE(codec->sums() == 0);
    REQUIRE(codec->gradient() == CodecGradient::straight_through);
    Message values = message_of(1);
    Message out = message_of(2);
    GuardedTensor frame = empty_frame(*codec);
    codec->encode(stream, values.matrices(), {}, kKey, frame);
    codec->decode(stream, frame, out.matrices(), false);
    REQUIRE(frame.sentinels_intact());
    REQUIRE(out.sentinels_intact());
  }
}

TEST_CASE("two bits decode to -S, -S/2, 0 and S/2") {
  Stream stream(test_stream(1, kWorkspace));
  const CodecSetting setting{.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::tensor};
  const auto codec = make_codec(setting, {{.name = "one", .shape = {30, 50}}}, 0, test_device());
  GuardedTensor x = random_tensor(DType::f32, {30, 50}, {});
  GuardedTensor out(DType::f32, {30, 50});
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, {x}, {}, kKey, frame);
  codec->decode(stream, frame, {out}, false);
  double largest = 0.0;
  for (const double value : x.values()) {
    largest = std::max(largest, std::abs(value));
  }
  const double S = static_cast<float>(BFloat16(static_cast<float>(largest)));
  const std::vector<double> decoded = out.values();
  const std::set<double> found(decoded.begin(), decoded.end());
  const std::set<double> all = {-S, -S / 2.0, 0.0, S / 2.0};
  REQUIRE(found.size() >= 3);
  REQUIRE(std::includes(all.begin(), all.end(), found.begin(), found.end()));
}

TEST_CASE("what receivers get and what is still owed make up all that was sent") {
  Stream stream(test_stream(2, kWorkspace));
  for (const CodecSetting& setting : settings()) {
    const auto codec = make(setting);
    Message residual(kOddParts);
    Message received(kOddParts);
    std::vector<double> sent(residual.values().size());
    for (std::uint64_t step = 1; step <= 20; ++step) {
      Message values = message_of(100 * step);
      const std::vector<double> before = values.values();
      const std::vector<double> owed = residual.values();
      GuardedTensor frame = empty_frame(*codec);
      codec->encode(
          stream, values.matrices(), residual.matrices(), {.seed = 1, .step = step}, frame);
      const std::vector<double> due = residual.values();
      codec->settle(stream, frame, residual.matrices());
      codec->decode(stream, frame, received.matrices(), true);
      REQUIRE(values.values() == before);  // only read
      std::vector<double> expected(sent.size());
      for (std::size_t e = 0; e < sent.size(); ++e) {
        sent[e] += before[e];
        expected[e] = static_cast<float>(owed[e] + before[e]);
      }
      REQUIRE(due == expected);
    }
    const std::vector<double> got = received.values();
    const std::vector<double> owed = residual.values();
    double worst = 0.0;
    for (std::size_t e = 0; e < sent.size(); ++e) {
      worst = std::max(worst, std::abs(got[e] + owed[e] - sent[e]));
    }
    // Three roundings a step of numbers below 64.
    REQUIRE(worst <= 20 * 3 * 64 * 0x1p-24);
  }
}

TEST_CASE("for numbers that codes hold exactly nothing is owed, and sums are exact") {
  Stream stream(test_stream(1, kWorkspace));
  for (const CodecSetting& setting : settings()) {
    if (setting.units == Units::moments) {
      continue;  // quotients are seldom exact
    }
    const auto codec = make(setting);
    Message values = message_of(1);
    std::size_t index = 0;
    for (const Tensor& matrix : values.matrices()) {
      for (float& value : matrix.span<float>()) {
        value = index++ % 3 == 0 ? -0.5F : index % 3 == 0 ? 0.25F : 0.0F;
      }
    }
    Message residual(kOddParts);
    Message out(kOddParts, 1.0);
    GuardedTensor frame = empty_frame(*codec);
    codec->encode(stream, values.matrices(), residual.matrices(), kKey, frame);
    codec->settle(stream, frame, residual.matrices());
    codec->decode(stream, frame, out.matrices(), true);
    std::vector<double> expected = values.values();
    const std::vector<double> owed = residual.values();
    for (std::size_t e = 0; e < expected.size(); ++e) {
      expected[e] += 1.0 - owed[e];
    }
    REQUIRE(out.values() == expected);
    if (setting.scale == ScaleOf::tensor) {
      REQUIRE(owed == std::vector<double>(owed.size()));
    }
  }
}

TEST_CASE("in units of moments the same share of every element is lost, however large it is") {
  Stream stream(test_stream(2, kWorkspace));
  const Shape shape{200, 300};
  const auto size_of = [](std::size_t e) { return std::exp2(-static_cast<double>(e * 3 % 7)); };
  std::vector<double> values = random_values(shape.num_elements(), {});
  std::vector<double> moments(values.size());
  for (std::size_t e = 0; e < values.size(); ++e) {
    values[e] = static_cast<float>(values[e] * size_of(e));
    moments[e] = size_of(e) * size_of(e);
  }
  GuardedTensor x(DType::f32, shape, values);
  GuardedTensor v(DType::f32, shape, moments);
  GuardedTensor out(DType::f32, shape);
  // The mean square that levels of 2 bits leave of normal values (Max, 1960), in all elements alike
  // and in those alone that are below an eighth of the largest.
  constexpr double kLeast = 0.1188;
  for (const Units units : {Units::values, Units::moments}) {
    const CodecSetting setting{
        .kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::both, .units = units};
    const auto codec =
        make_codec(setting,
                   {{.name = "one", .shape = {.rows = 200, .columns = 300}, .moments = v}},
                   0,
                   test_device());
    GuardedTensor frame = empty_frame(*codec);
    codec->encode(stream, {x}, {}, kKey, frame);
    codec->decode(stream, frame, {out}, false);
    const std::vector<double> decoded = out.values();
    double of_all = 0.0;
    double of_small = 0.0;
    double num_small = 0.0;
    for (std::size_t e = 0; e < values.size(); ++e) {
      const double lost = std::pow((decoded[e] - values[e]) / size_of(e), 2.0);
      of_all += lost;
      of_small += size_of(e) < 0x1p-3 ? lost : 0.0;
      num_small += size_of(e) < 0x1p-3 ? 1.0 : 0.0;
    }
    of_all /= static_cast<double>(values.size());
    of_small /= num_small;
    INFO("units " << static_cast<int>(units) << ": " << of_all << ", of small ones " << of_small);
    if (units == Units::moments) {
      // Within what 500 scales, estimated from the values and rounded to bf16, add.
      CHECK(of_all < 1.1 * kLeast);
      CHECK(of_small < 1.1 * kLeast);
    } else {
      CHECK(of_small > 10.0);  // scales of rows and columns are those of the largest
    }
  }
}

TEST_CASE("a frame of other size or header is refused before anything is written") {
  Stream stream(test_stream(1, kWorkspace));
  const CodecSetting setting{.kind = CodecKind::quantize, .bits = 4};
  const auto codec = make(setting);
  Message values = message_of(1);
  Message out = message_of(2);
  const std::vector<double> before = out.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), {}, kKey, frame);
  const std::vector<double> good = frame.values();
  const auto refuse = [&](const Tensor& wrong, const std::string& message) {
    const auto decode = [&](bool accumulate) {
      codec->decode(stream, wrong, out.matrices(), accumulate);
      stream.synchronize();  // by when the CUDA device refuses, having written
    };
    REQUIRE_THROWS_AS(decode(false), CommError);
    REQUIRE_THROWS_WITH(decode(true), Catch::Contains(message));
    REQUIRE((test_device() == Device::cuda || out.values() == before));
  };
  refuse(frame.view().rows(0, frame.view().dim(0) - 1), "bytes where");
  for (const std::size_t byte : {1U, 4U, 8U, 12U}) {  // magic, codec, bits, bytes that follow
    std::vector<double> damaged = good;
    damaged[byte] = std::fmod(damaged[byte] + 1.0, 256.0);
    frame.set(damaged);
    refuse(frame, "a compressed message begins with");
  }
}

TEST_CASE("quantized messages have the same bits for any number of threads") {
  for (const CodecSetting& setting : settings()) {
    const auto codec = make(setting);
    require_same_bits_for_any_thread_count(
        codec->workspace_bytes(test_workers(3)), [&](StreamView stream) {
          Message values = message_of(1);
          Message residual = message_of(50, 0.1);
          GuardedTensor frame = empty_frame(*codec);
          codec->encode(stream, values.matrices(), residual.matrices(), kKey, frame);
          codec->settle(stream, frame, residual.matrices());
          std::vector<std::byte> bytes = frame.bytes();
          const std::vector<double> owed = residual.values();
          const auto more = std::as_bytes(std::span(owed));
          bytes.insert(bytes.end(), more.begin(), more.end());
          return bytes;
        });
  }
}

TEST_CASE("on the rehearsal device a quantized frame is sent and taken, and nothing is written") {
  RehearsalClock clock;
  Stream stream({.workspace_bytes = kWorkspace, .rehearsal = &clock});
  const auto codec = make({.kind = CodecKind::quantize, .bits = 8});
  Message values = message_of(1);
  Message residual = message_of(2);
  Message out = message_of(3);
  const std::vector<double> before = out.values();
  const std::vector<double> owed = residual.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), residual.matrices(), kKey, frame);
  codec->settle(stream, frame, residual.matrices());
  codec->decode(stream, frame, out.matrices(), true);
  REQUIRE(out.values() == before);
  REQUIRE(residual.values() == owed);
}

}  // namespace slackline::testing
