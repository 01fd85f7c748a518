// How the gradient of an activation passes a codec, against finite differences of what the codec
// makes of that activation.

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "compress/codec_bytes.h"
#include "tests/compress/kept_messages.h"
#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

constexpr MessageKey kKey = {.seed = 1234, .step = 5, .micro_batch = 2};
constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 20;
const std::vector<CodecPart> kActivation = {{.name = "x", .shape = {kRows, kColumns}}};

// An activation and the direction in which it moves.
struct Probe {
  std::vector<double> x{};
  std::vector<double> direction{};
};

// Whole numbers that bf16 holds. A quarter of the elements is so large, and moves so little, that
// Top-K keeps the same ones everywhere on the way.
Probe probe_of_few_large_elements() {
  Probe probe;
  for (std::size_t i = 0; i < static_cast<std::size_t>(kRows * kColumns); ++i) {
    const double sign = i % 3 == 0 ? -1.0 : 1.0;
    const auto size = static_cast<double>(i % 4 == 0 ? 64 + i % 16 : i % 32);
    probe.x.push_back(sign * size);
    probe.direction.push_back(static_cast<double>(i % 7) - 3.0);
  }
  return probe;
}

// Moves far: by what all errors of a codec together are small against.
Probe probe_of_large_steps() {
  Probe probe{.x = random_values(kRows * kColumns, {.seed = 3})};
  probe.direction = random_values(kRows * kColumns, {.seed = 4});
  return probe;
}

// The activation moves within the span of two fixed rows, which a factor of rank 2 learns.
Probe probe_of_rank_two() {
  const std::vector<double> left = random_values(kRows * 4, {.seed = 5});
  const std::vector<double> right = random_values(kColumns * 2, {.seed = 6});
  Probe probe;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      const double a = right[2 * column];
      const double b = right[2 * column + 1];
      probe.x.push_back(left[4 * row] * a + left[4 * row + 1] * b);
      probe.direction.push_back(left[4 * row + 2] * a + left[4 * row + 3] * b);
    }
  }
  return probe;
}

// One codec at both ends of a boundary, as the executor uses it.
class Boundary {
 public:
  explicit Boundary(const CodecSetting& setting)
      : codec_(make_codec(setting, kActivation, kKey.seed, test_device())),
        stream_(test_stream(2, codec_->workspace_bytes(test_workers(2)))),
        frame_(empty_frame(*codec_)) {}

  std::vector<double> pass(const std::vector<double>& x) {
    Message values(kActivation);
    values.tensor(0).set(x);
    Message out(kActivation);
    codec_->encode(stream_, values.matrices(), {}, kKey, frame_);
    codec_->decode(stream_, frame_, out.matrices(), false);
    return out.values(0);
  }

  // The gradient of the activation, where `gradient` is that of what arrived last.
  std::vector<double> pass_back(const std::vector<double>& gradient) {
    Message values(kActivation);
    values.tensor(0).set(gradient);
    if (codec_->gradient() == CodecGradient::masked) {
      codec_->mask(stream_, frame_, values.tensor(0));
    }
    return values.values(0);
  }

 private:
  std::unique_ptr<Codec> codec_;
  Stream stream_;
  GuardedTensor frame_;
};

std::vector<double> moved(const Probe& probe, double by) {
  std::vector<double> x = probe.x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] += by * probe.direction[i];
  }
  return x;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::vector<double> signs_of(const std::vector<double>& values) {
  std::vector<double> signs;
  signs.reserve(values.size());
  for (const double value : values) {
    signs.push_back(value < 0.0 ? -1.0 : 1.0);
  }
  return signs;
}

double sum_of_sizes(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) {
    sum += std::abs(value);
  }
  return sum;
}

struct Slopes {
  double analytic = 0.0;  // from the gradient as it passes back
  double finite = 0.0;    // from what arrives a step to either side
};

// The loss is sum |d_i| y_i / d_i, y what arrives: its gradient has the direction's signs.
Slopes slopes(const CodecSetting& setting, const Probe& probe) {
  const std::vector<double> weights = signs_of(probe.direction);
  Boundary boundary(setting);
  for (int time = 0; time < 3; ++time) {
    boundary.pass(probe.x);  // factors turn to what passes
  }
  Slopes result;
  result.analytic = product(boundary.pass_back(weights), probe.direction);
  result.finite = 0.5 * (product(weights, boundary.pass(moved(probe, 1.0))) -
                         product(weights, boundary.pass(moved(probe, -1.0))));
  return result;
}

CodecSetting sparse(CodecKind kind, double ratio, DType values) {
  return {.kind = kind, .ratio = ratio, .values = values};
}

}  // namespace

TEST_CASE("the gradient of an activation passes codecs that keep elements exactly") {
  const Probe probe = probe_of_few_large_elements();
  for (const DType values : {DType::f32, DType::bf16}) {
    for (const CodecKind kind : {CodecKind::top_k, CodecKind::random_k}) {
      // The share of elements that travel is a power of two, and so is what they are scaled by.
      for (const double ratio : {0.25, 1.0}) {
        const CodecSetting setting = sparse(kind, ratio, values);
        INFO(short_text(setting));
        const Slopes found = slopes(setting, probe);
        CHECK(found.analytic == found.finite);
        CHECK(found.analytic != 0.0);
      }
    }
  }
}

TEST_CASE("random_k's gradient has the scale of its message at any ratio") {
  for (const double ratio : {0.01, 0.3, 0.77}) {
    INFO(ratio);
    const Slopes found =
        slopes(sparse(CodecKind::random_k, ratio, DType::f32), probe_of_few_large_elements());
    // The factor is a float, and each product with it rounds once.
    CHECK(found.analytic == Approx(found.finite).epsilon(1e-6));
  }
}

TEST_CASE("the gradient of an activation passes a cast within its rounding") {
  const Probe probe = probe_of_large_steps();
  const Slopes found = slopes({.kind = CodecKind::cast}, probe);
  // Half a unit in the 8th bit of both points of the difference.
  const double bound =
      0x1p-9 * 0.5 * (sum_of_sizes(moved(probe, 1.0)) + sum_of_sizes(moved(probe, -1.0)));
  CHECK(std::abs(found.analytic - found.finite) <= bound);
  CHECK(bound < 0.01 * found.analytic);
}

TEST_CASE("the gradient of an activation passes integers within their steps") {
  const Probe probe = probe_of_large_steps();
  double largest = 0.0;
  for (const double by : {-1.0, 1.0}) {
    for (const double value : moved(probe, by)) {
      largest = std::max(largest, std::abs(value));
    }
  }
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    for (const ScaleOf scale :
         {ScaleOf::channel, ScaleOf::token, ScaleOf::group, ScaleOf::tensor, ScaleOf::both}) {
      for (const int bits : {4, 8}) {
        const CodecSetting setting{.kind = CodecKind::quantize,
                                   .bits = bits,
                                   .scale = scale,
                                   .group = 5,
                                   .rounding = rounding};
        INFO(short_text(setting));
        const Slopes found = slopes(setting, probe);
        // A step of the largest scale, which bf16 rounds, for every element of both points.
        const double step = (1.0 + 0x1p-8) * largest / std::exp2(bits - 1);
        CHECK(std::abs(found.analytic - found.finite) <= step * kRows * kColumns);
        CHECK((bits == 4 || step * kRows * kColumns < 0.1 * found.analytic));
      }
    }
  }
}

TEST_CASE("the gradient of an activation passes factors that lose nothing of it") {
  for (const DType factors : {DType::f32, DType::bf16}) {
    const CodecSetting setting{.kind = CodecKind::low_rank, .rank = 2, .factors = factors};
    const Slopes found = slopes(setting, probe_of_rank_two());
    // Two factors, rounded to f32 after some products, or to bf16.
    const double rounding = factors == DType::f32 ? 1e-5 : 2.0 * 0x1p-8;
    CHECK(found.analytic == Approx(found.finite).epsilon(rounding));
  }
}

}  // namespace slackline::testing
