#include <cmath>
#include <limits>

#include "compress/codec.h"
#include "compress/codec_bytes.h"
#include "core/error.h"
#include "core/rehearsal_clock.h"
#include "core/tensor/host_tensor.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

const CodecSetting kCast{.kind = CodecKind::cast};
const std::vector<CodecPart> kTwo = {{.name = "first", .shape = {3, 7}},
                                     {.name = "second", .shape = {40, 33}}};

Message message_of(std::uint64_t seed) {
  return Message::normal_numbers(kTwo, seed);
}

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

}  // namespace

TEST_CASE("a cast frame has the bytes of the formula and holds the values rounded to bf16") {
  Stream stream(test_stream(2));
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  REQUIRE(codec->frame_bytes() == frame_bytes(kCast, kTwo));
  REQUIRE(codec->workspace_bytes(test_workers(2)) == 0);
  Message values = message_of(1);
  Message out = message_of(3);
  const std::vector<double> before = out.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), {}, {}, frame);
  codec->decode(stream, frame, out.matrices(), true);
  REQUIRE(out.values() == sum_of(before, rounded(values.values())));
  codec->decode(stream, frame, out.matrices(), false);
  REQUIRE(out.values() == rounded(values.values()));
  REQUIRE(frame.sentinels_intact());
  REQUIRE(out.sentinels_intact());
}

TEST_CASE("a cast message with a residual stands for both, and owes exactly what bf16 leaves out") {
  Stream stream(test_stream(2));
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  Message values = message_of(1);
  Message residual = message_of(3);
  Message out = message_of(5);
  const std::vector<double> both = sum_of(values.values(), residual.values());
  const std::vector<double> sent = values.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), residual.matrices(), {}, frame);
  REQUIRE(residual.values() == both);
  codec->settle(stream, frame, residual.matrices());
  codec->decode(stream, frame, out.matrices(), false);
  REQUIRE(values.values() == sent);
  REQUIRE(out.values() == rounded(both));
  REQUIRE(residual.values() == difference_of(both, rounded(both)));
}

TEST_CASE("cast messages add: the sum is decoded, and each rank owes what its addend left out") {
  Stream stream(test_stream(2));
  const auto mine = make_codec(kCast, kTwo, 0, test_device());
  const auto other = make_codec(kCast, kTwo, 0, test_device());
  REQUIRE(mine->sums() == 1);
  Message values = message_of(1);
  Message residual = message_of(3);
  Message theirs = message_of(5);
  const std::vector<double> both = sum_of(values.values(), residual.values());
  mine->begin_sum(stream, values.matrices(), residual.matrices(), {});
  const Tensor addend = mine->addend(1);
  other->begin_sum(stream, theirs.matrices(), {}, {});
  const Tensor their_addend = other->addend(1);
  stream.synchronize();
  REQUIRE(addend.num_elements() == sum_rounds(kCast, kTwo).front().elements);
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
  mine->finish_sum(stream, values.matrices(), residual.matrices(), 2);
  REQUIRE(values.values() == total);
  REQUIRE(residual.values() == difference_of(both, rounded(both)));
  REQUIRE(values.sentinels_intact());
}

TEST_CASE("for numbers that bf16 holds nothing is owed and sums are exact") {
  Stream stream(test_stream(1));
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  Message values = message_of(1);
  values.tensor(0).set(rounded(values.values(0)));
  values.tensor(1).set(rounded(values.values(1)));
  const std::vector<double> exact = values.values();
  Message residual(kTwo);
  codec->begin_sum(stream, values.matrices(), residual.matrices(), {});
  codec->finish_sum(stream, values.matrices(), residual.matrices(), 1);
  REQUIRE(values.values() == exact);
  REQUIRE(residual.values() == std::vector<double>(exact.size()));
}

TEST_CASE("an Inf or NaN passes a cast") {
  Stream stream(test_stream(1));
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  Message values = message_of(1);
  values.tensor(1).view().data<float>()[100] = std::nanf("");
  values.tensor(1).view().data<float>()[200] = -std::numeric_limits<float>::infinity();
  Message out = message_of(3);
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), {}, {}, frame);
  codec->decode(stream, frame, out.matrices(), false);
  REQUIRE(std::isnan(out.values(1)[100]));
  REQUIRE(out.values(1)[200] == -std::numeric_limits<double>::infinity());
}

TEST_CASE("a frame that is no cast of these shapes is refused before anything is written") {
  Stream stream(test_stream(1, std::size_t{1} << 20U));
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  Message values = message_of(1);
  Message out = message_of(3);
  const std::vector<double> before = out.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), {}, {}, frame);
  const Tensor short_frame = frame.view().rows(0, frame.view().dim(0) - 2);
  REQUIRE_THROWS_AS(codec->decode(stream, short_frame, out.matrices(), false), CommError);
  const CodecSetting setting{.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::tensor};
  const auto other = make_codec(setting, kTwo, 0, test_device());
  other->encode(stream,
                values.matrices(),
                {},
                {},
                frame.view().rows(0, static_cast<std::int64_t>(other->frame_bytes())));
  const auto decode = [&] {
    codec->decode(stream, frame, out.matrices(), false);
    stream.synchronize();  // by when the CUDA device refuses, having written
  };
  REQUIRE_THROWS_WITH(decode(), Catch::Contains("(cast), 16"));
  REQUIRE((test_device() == Device::cuda || out.values() == before));
}

TEST_CASE("a cast has the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    const auto codec = make_codec(kCast, {{.name = "one", .shape = {100, 999}}}, 0, test_device());
    GuardedTensor values = random_tensor(DType::f32, {100, 999}, {.seed = 1});
    GuardedTensor residual = random_tensor(DType::f32, {100, 999}, {.seed = 2});
    GuardedTensor frame = empty_frame(*codec);
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
  const auto codec = make_codec(kCast, kTwo, 0, test_device());
  Message values = message_of(1);
  Message residual = message_of(3);
  Message out = message_of(5);
  const std::vector<double> before = out.values();
  GuardedTensor frame = empty_frame(*codec);
  codec->encode(stream, values.matrices(), residual.matrices(), {}, frame);
  codec->settle(stream, frame, residual.matrices());
  codec->decode(stream, frame, out.matrices(), true);
  codec->begin_sum(stream, values.matrices(), residual.matrices(), {});
  codec->finish_sum(stream, out.matrices(), residual.matrices(), 2);
  REQUIRE(out.values() == before);
}

}  // namespace slackline::testing
