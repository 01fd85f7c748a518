#include "compress/expected_error.h"

#include <cmath>

#include "compress/codec.h"
#include "core/tensor/buffer.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"

namespace slackline::testing {

namespace {

constexpr MatrixShape kShape{.rows = 128, .columns = 256};

// Measures the error of a message of normal numbers.
double measured_error(const CodecSetting& setting) {
  const auto codec = make_codec(setting, {{.name = "x", .shape = kShape}}, 7);
  Stream stream({.num_threads = 1, .workspace_bytes = codec->workspace_bytes(1)});
  GuardedTensor values = random_tensor(DType::f32, {kShape.rows, kShape.columns}, {.seed = 3});
  GuardedTensor decoded(DType::f32, {kShape.rows, kShape.columns});
  const Buffer frame("frame", codec->frame_bytes());
  const Tensor bytes = frame.view(DType::u8, {static_cast<std::int64_t>(frame.bytes())});
  codec->encode(stream, {Tensor(values)}, {}, {.seed = 7, .step = 1}, bytes);
  codec->decode(stream, bytes, {Tensor(decoded)}, false);
  const std::vector<double> x = values.values();
  const std::vector<double> y = decoded.values();
  double lost = 0.0;
  double all = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    lost += (x[i] - y[i]) * (x[i] - y[i]);
    all += x[i] * x[i];
  }
  return std::sqrt(lost / all);
}

}  // namespace

TEST_CASE("expected errors are about those of normal numbers") {
  const CodecSetting settings[] = {
      {.kind = CodecKind::cast},
      {.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::token},
      {.kind = CodecKind::quantize, .bits = 4, .scale = ScaleOf::token},
      {.kind = CodecKind::quantize, .bits = 3, .scale = ScaleOf::token},
      {.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::token},
      {.kind = CodecKind::quantize, .bits = 8, .scale = ScaleOf::both},
      {.kind = CodecKind::quantize, .bits = 4, .scale = ScaleOf::both},
      {.kind = CodecKind::quantize, .bits = 3, .scale = ScaleOf::both},
      {.kind = CodecKind::quantize, .bits = 2, .scale = ScaleOf::both},
      {.kind = CodecKind::top_k, .ratio = 0.5},
      {.kind = CodecKind::top_k, .ratio = 0.1},
      {.kind = CodecKind::top_k, .ratio = 0.01},
      {.kind = CodecKind::random_k, .ratio = 0.5},
      {.kind = CodecKind::random_k, .ratio = 0.1}};
  for (const CodecSetting& setting : settings) {
    INFO(short_text(setting));
    // Its figures are rounded to two digits, by up to 2.4 % here. Errors of 32768 numbers vary by
    // less than 1 %.
    CHECK(expected_error(setting, kShape) == Approx(measured_error(setting)).epsilon(0.03));
  }
  // A power step from a random start finds more than an equal share of the directions' energy.
  for (const int rank : {4, 16, 64}) {
    const CodecSetting setting{.rank = rank};
    CHECK(measured_error(setting) < expected_error(setting, kShape));
    CHECK(expected_error(setting, kShape) == Approx(std::sqrt(1.0 - rank / 128.0)));
  }
}

TEST_CASE("a stronger setting of a codec is expected to lose more") {
  CHECK(expected_error({.rank = 8}, kShape) > expected_error({.rank = 16}, kShape));
  CHECK(expected_error({.rank = 500}, kShape) == 0.0);
  CHECK(expected_error({.kind = CodecKind::random_k, .ratio = 0.1}, kShape) >
        expected_error({.kind = CodecKind::top_k, .ratio = 0.1}, kShape));
  CHECK(expected_error({.kind = CodecKind::top_k, .ratio = 1.0}, kShape) ==
        Approx(0.0).margin(1e-6));
}

}  // namespace slackline::testing
