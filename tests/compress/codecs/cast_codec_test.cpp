#include <cmath>
#include <limits>

#include "compress/codec_bytes.h"
#include "compress/codec_factories.h"
#include "core/error.h"
#include "core/rehearsal_clock.h"
#include "core/tensor/host_tensor.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

const CodecSetting kCast{.kind = CodecKind::cast};
const std::vector<CodecPart> kParts = {{.name = "first", .shape = {3, 7}},
                                       {.name = "second", .shape = {40, 33}}};

GuardedTensor matrix(std::uint64_t seed, const MatrixShape& shape) {
  return random_tensor(DType::f32, {shape.rows, shape.columns}, {.seed = seed});
}

// The two matrices of a message.
struct Message {
  explicit Message(std::uint64_t seed)
      : first(matrix(seed, kParts[0].shape)), second(matrix(seed + 1, kParts[1].shape)) {}

  Codec::Matrices views() { return {first, second}; }

  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all = first.values();
    const std::vector<double> more = second.values();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void fill(double value) {
    first.fill(value);
    second.fill(value);
  }

  [[nodiscard]] bool sentinels_intact() const {
    return first.sentinels_intact() && second.sentinels_intact();
  }

  GuardedTensor first;
  GuardedTensor second;
};

std::vector<double> rounded(const std::vector<double>& values) {
  return GuardedTensor(DType::bf16, {static_cast<std::int64_t>(values.size())}, values).values();
}

std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(a[i] + b[i]);
  }
  return a;
}

std::vector<double> difference_of(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(a[i] - b[i]);
  }
  return a;
}

GuardedTensor frame_of(const Codec& codec) {
  return {DType::u8, {static_cast<std::int64_t>(codec.frame_bytes())}};
}

}  // namespace

TEST_CASE("a cast frame has the bytes of the formula and holds the values rounded to bf16") {
  Stream stream(test_stream(2));
  const auto codec = make_cast_codec(kParts, test_device());
  REQUIRE(codec->frame_bytes() == frame_bytes(kCast, kParts));
  REQUIRE(codec->workspace_bytes(test_workers(2)) == 0);
  Message values(1);
  Message out(3);
  const std::vector<double> before = out.values();
  GuardedTensor frame = frame_of(*codec);
  codec->encode(stream, values.views(), {}, {}, frame);
  codec->decode(stream, frame, out.views(), true);
  REQUIRE(out.values() == sum_of(before, rounded(values.values())));
  codec->decode(stream, frame, out.views(), false);
  REQUIRE(out.values() == rounded(values.values()));
  REQUIRE(frame.sentinels_intact());
  REQUIRE(out.sentinels_intact());
}

TEST_CASE("a cast message with a residual stands for both, and owes exactly what bf16 leaves out") {
  Stream stream(test_stream(2));
  const auto codec = make_cast_codec(kParts, test_device());
  Message values(1);
  Message residual(3);
  Message out(5);
  const std::vector<double> both = sum_of(values.values(), residual.values());
  const std::vector<double> sent = values.values();
  GuardedTensor frame = frame_of(*codec);
  codec->encode(stream, values.views(), residual.views(), {}, frame);
  REQUIRE(residual.values() == both);
  codec->settle(stream, frame, residual.views());
  codec->decode(stream, frame, out.views(), false);
  REQUIRE(values.values() == sent);
  REQUIRE(out.values() == rounded(both));
  REQUIRE(residual.values() == difference_of(both, rounded(both)));
}

TEST_CASE("cast messages add: the sum is decoded, and each rank owes what its addend left out") {
  Stream stream(test_stream(2));
  const auto mine = make_cast_codec(kParts, test_device());
  const auto other = make_cast_codec(kParts, test_device());
  REQUIRE(mine->sums() == 1);
  Message values(1);
  Message residual(3);
  Message theirs(5);
  const std::vector<double> both = sum_of(values.values(), residual.values());
  mine->begin_sum(stream, values.views(), residual.views(), {});
  const Tensor addend = mine->addend(1);
  other->begin_sum(stream, theirs.views(), {}, {});
  const Tensor their_addend = other->addend(1);
  stream.synchronize();
  REQUIRE(addend.num_elements() == sum_rounds(kCast, kParts).front().elements);
  REQUIRE(residual.values() == both);
  std::vector<double> total;
  const HostTensor sum(addend);
  const HostTensor theirs_rounded(their_addend);
  for (std::size_t i = 0; i < addend.num_elements(); ++i) {  // as the ranks would add them up
    BFloat16& element = sum.tensor().data<BFloat16>()[i];
    element = BFloat16(static_cast<float>(element) +
                       static_cast<float>(theirs_rounded.tensor().data<BFloat16>()[i]));
    total.push_back(static_cast<float>(element));
  }
  sum.write_back();
  mine->finish_sum(stream, values.views(), residual.views(), 2);
  REQUIRE(values.values() == total);
  REQUIRE(residual.values() == difference_of(both, rounded(both)));
  REQUIRE(values.sentinels_intact());
}

TEST_CASE("for numbers that bf16 holds nothing is owed and sums are exact") {
  Stream stream(test_stream(1));
  const auto codec = make_cast_codec(kParts, test_device());
  Message values(1);
  values.first.set(rounded(values.first.values()));
  values.second.set(rounded(values.second.values()));
  const std::vector<double> exact = values.values();
  Message residual(3);
  residual.fill(0.0);
  codec->begin_sum(stream, values.views(), residual.views(), {});
  codec->finish_sum(stream, values.views(), residual.views(), 1);
  REQUIRE(values.values() == exact);
  REQUIRE(residual.values() == std::vector<double>(exact.size()));
}

TEST_CASE("an Inf or NaN passes a cast") {
  Stream stream(test_stream(1));
  const auto codec = make_cast_codec(kParts, test_device());
  Message values(1);
  values.second.view().data<float>()[100] = std::nanf("");
  values.second.view().data<float>()[200] = -std::numeric_limits<float>::infinity();
  Message out(3);
  GuardedTensor frame = frame_of(*codec);
  codec->encode(stream, values.views(), {}, {}, frame);
  codec->decode(stream, frame, out.views(), false);
  REQUIRE(std::isnan(out.second.values()[100]));
  REQUIRE(out.second.values()[200] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("a frame that is no cast of these shapes is refused before anything is written") {
  Stream stream(test_stream(1, std::size_t{1} << 20U));
  const auto codec = make_cast_codec(kParts, test_device());
  Message values(1);
  Message out(3);
  const std::vector<double> before = out.values();
  GuardedTensor frame = frame_of(*codec);
  codec->encode(stream, values.views(), {}, {}, frame);
  const Tensor short_frame = frame.view().rows(0, frame.view().dim(0) - 2);
  REQUIRE_THROWS_AS(codec->decode(stream, short_frame, out.views(), false), CommError);
  const CodecSetting setting{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::tensor};
  const auto other = make_quantize_codec(setting, kParts);
  other->encode(stream,
                values.views(),
                {},
                {},
                frame.view().rows(0, static_cast<std::int64_t>(other->frame_bytes())));
  const auto decode = [&] {
    codec->decode(stream, frame, out.views(), false);
    stream.synchronize();  // by when the CUDA device refuses, having written
  };
  REQUIRE_THROWS_WITH(decode(), Catch::Contains("(cast), 16"));
  REQUIRE((test_device() == Device::cuda || out.values() == before));
}

TEST_CASE("a cast has the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    const auto codec = make_cast_codec({{.name = "one", .shape = {100, 999}}}, test_device());
    GuardedTensor values = matrix(1, {100, 999});
    GuardedTensor residual = matrix(2, {100, 999});
    GuardedTensor frame = frame_of(*codec);
    codec->encode(stream, {values}, {residual}, {}, frame);
    codec->settle(stream, frame, {residual});
    std::vector<std::byte> bytes = frame.bytes();
    const std::vector<std::byte> more = residual.bytes();
    bytes.insert(bytes.end(), more.begin(), more.end());
    return bytes;
  });
}

TEST_CASE("on the rehearsal device a cast frame is sent and taken, and nothing is written") {
  RehearsalClock clock;
  Stream stream({.rehearsal = &clock});
  const auto codec = make_cast_codec(kParts, test_device());
  Message values(1);
  Message residual(3);
  Message out(5);
  const std::vector<double> before = out.values();
  GuardedTensor frame = frame_of(*codec);
  codec->encode(stream, values.views(), residual.views(), {}, frame);
  codec->settle(stream, frame, residual.views());
  codec->decode(stream, frame, out.views(), true);
  codec->begin_sum(stream, values.views(), residual.views(), {});
  codec->finish_sum(stream, out.views(), residual.views(), 2);
  REQUIRE(out.values() == before);
}

}  // namespace slackline::testing
