#include "compress/kernels/quantize/quantize.h"

#include <cmath>
#include <limits>
#include <utility>

#include "tests/reference/quantize_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kWorkspace = std::size_t{1} << 20U;
constexpr RoundingKey kKey{.stream = {12, 34}, .step = 5, .message = 6, .first_element = 21};

std::vector<QuantizedFormat> all_formats() {
  std::vector<QuantizedFormat> formats;
  for (const int bits : {2, 3, 4, 8}) {
    for (const ScaleOf shared :
         {ScaleOf::channel, ScaleOf::token, ScaleOf::tensor, ScaleOf::both}) {
      formats.push_back({.bits = bits, .shared = shared});
    }
    for (const std::int64_t group : {1, 5, 32, 128}) {
      formats.push_back({.bits = bits, .shared = ScaleOf::group, .group = group});
    }
  }
  return formats;
}

std::string describe(const QuantizedFormat& format, const Shape& shape) {
  return std::to_string(format.bits) + " bits, sharing " +
         std::to_string(static_cast<int>(format.shared)) + ", groups of " +
         std::to_string(format.group) + ", " + shape.to_string();
}

// A matrix in its quantized form.
struct Guarded {
  Guarded(const QuantizedFormat& of, const Shape& shape)
      : format(of),
        scales(DType::bf16, {of.num_scales(shape[0], shape[1])}),
        packed(DType::u8, {shape[0], of.row_bytes(shape[1])}) {}

  [[nodiscard]] QuantizedMatrix view() { return {format, scales, packed}; }

  [[nodiscard]] bool sentinels_intact() const {
    return scales.sentinels_intact() && packed.sentinels_intact();
  }

  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = scales.bytes();
    const std::vector<std::byte> more = packed.bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  QuantizedFormat format;
  GuardedTensor scales;
  GuardedTensor packed;
};

std::vector<double> decoded(StreamView stream, Guarded& from, const Shape& shape) {
  GuardedTensor out(DType::f32, shape);
  dequantize(stream, from.view(), out);
  REQUIRE(out.sentinels_intact());
  return out.values();
}

reference::QuantizeOracle oracle_of(const QuantizedFormat& format, const Shape& shape) {
  return {format, static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1])};
}

// The largest distance of codes from positions; what is clipped counts from the end of the range.
double worst_distance(const std::vector<double>& codes,
                      const std::vector<double>& positions,
                      double largest) {
  double worst = 0.0;
  for (std::size_t e = 0; e < codes.size(); ++e) {
    worst = std::max(worst, std::abs(codes[e] - std::clamp(positions[e], 0.0, largest)));
  }
  return worst;
}

}  // namespace

TEST_CASE("codes are the nearest, scales the largest magnitudes, and decoding is exact") {
  Stream stream(test_stream(2, kWorkspace));
  for (const Shape& shape :
       {Shape{0, 3}, Shape{1, 1}, Shape{1, 7}, Shape{5, 33}, Shape{3, 2500}, Shape{131, 66}}) {
    GuardedTensor x = random_tensor(DType::f32, shape, {.deviation = 1e-3});
    for (const QuantizedFormat& format : all_formats()) {
      INFO(describe(format, shape));
      Guarded quantized(format, shape);
      quantize(stream, {.x = x, .to = quantized.view()});
      REQUIRE(quantized.sentinels_intact());
      const auto oracle = oracle_of(format, shape);
      REQUIRE(quantized.scales.values() == oracle.scales(x.values()));
      const std::vector<double> codes = oracle.codes(quantized.packed.values());
      // Half a step, and two roundings of a position of at most 2^(bits - 1).
      const double allowed = 0.5 + oracle.levels() * 0x1p-23;
      REQUIRE(worst_distance(codes, oracle.positions(x.values()), oracle.largest_code()) <=
              allowed);
      REQUIRE(decoded(stream, quantized, shape) ==
              oracle.decoded(codes, quantized.scales.values()));
    }
  }
}

TEST_CASE("scales of rows and columns follow a matrix whose deviations are products of theirs") {
  Stream stream(test_stream(2, kWorkspace));
  const Shape shape{300, 400};
  std::vector<double> values = random_values(shape.num_elements(), {});
  for (std::size_t e = 0; e < values.size(); ++e) {
    values[e] = static_cast<float>(values[e] * std::exp2(static_cast<double>(e / 400 % 7)) *
                                   std::exp2(-static_cast<double>(e % 400 % 11)));
  }
  GuardedTensor x(DType::f32, shape, values);
  // The smallest mean square that evenly spaced levels leave of normal values (Max, 1960), and what
  // estimating 700 deviations from the values themselves and rounding them to bf16 adds.
  constexpr std::pair<int, double> kLeast[] = {
      {2, 0.1188}, {3, 0.03744}, {4, 0.01154}, {8, 0.000105}};
  for (const auto& [bits, least] : kLeast) {
    const QuantizedFormat format{.bits = bits, .shared = ScaleOf::both};
    Guarded quantized(format, shape);
    quantize(stream, {.x = x, .to = quantized.view()});
    const std::vector<double> out = decoded(stream, quantized, shape);
    double lost = 0.0;  // in units of the elements' own deviations
    for (std::size_t e = 0; e < values.size(); ++e) {
      const double deviation = std::exp2(static_cast<double>(e / 400 % 7)) *
                               std::exp2(-static_cast<double>(e % 400 % 11));
      lost += std::pow((out[e] - values[e]) / deviation, 2.0);
    }
    INFO(bits << " bits");
    const double share = lost / static_cast<double>(values.size());
    CHECK(share > 0.9 * least);
    CHECK(share < 1.1 * least);
  }
}

TEST_CASE("far below all levels stands the lowest, far above the highest") {
  Stream stream(test_stream(1, kWorkspace));
  // A small element is all that its row and its column have: its scale is smaller by far.
  GuardedTensor matrix(DType::f32, {2, 2}, std::vector<double>{1.0, 0.0, 0.0, -2e-6});
  for (const bool is_random : {false, true}) {
    Guarded quantized({.bits = 8, .shared = ScaleOf::both}, {2, 2});
    Quantize args{.x = matrix, .to = quantized.view()};
    if (is_random) {
      args.stochastic = kKey;
    }
    quantize(stream, args);
    const std::vector<double> out = decoded(stream, quantized, {2, 2});
    CHECK(out[0] > 0.0);
    CHECK(out[3] < 0.0);
  }
}

TEST_CASE("rows and columns of zeros become zeros, and no element changes its sign") {
  Stream stream(test_stream(1, kWorkspace));
  Guarded quantized({.bits = 2, .shared = ScaleOf::both}, {3, 4});
  const std::vector<double> x = {0, 0, 0, 0, 5, 0, -5, 5, -1, 0, 1, 1};
  GuardedTensor matrix(DType::f32, {3, 4}, x);
  quantize(stream, {.x = matrix, .to = quantized.view()});
  const std::vector<double> out = decoded(stream, quantized, {3, 4});
  for (std::size_t e = 0; e < x.size(); ++e) {
    INFO("element " << e);
    CHECK((out[e] == 0.0) == (x[e] == 0.0));
    CHECK(out[e] * x[e] >= 0.0);
  }
}

TEST_CASE("ties go to the even number, and the highest one is clipped") {
  Stream stream(test_stream(1));
  const std::vector<double> x = {-1.0, -0.6875, -0.5625, -0.1875, 0.0625, 0.1875, 0.3125, 1.0};
  GuardedTensor matrix(DType::f32, {1, 8}, x);
  Guarded quantized({.bits = 4, .shared = ScaleOf::token}, {1, 8});
  quantize(stream, {.x = matrix, .to = quantized.view()});
  // In steps of 1/8: -8, -5.5, -4.5, -1.5, 0.5, 1.5, 2.5, 8.
  const std::vector<double> expected = {-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.25, 0.875};
  REQUIRE(decoded(stream, quantized, {1, 8}) == expected);
}

TEST_CASE("what is left of a row's last byte holds the code of zero") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {2, 1}, std::vector<double>{-1.0, -1.0});
  Guarded two({.bits = 2}, {2, 1});
  Guarded three({.bits = 3}, {2, 1});
  Guarded four({.bits = 4}, {2, 1});
  quantize(stream, {.x = x, .to = two.view()});
  quantize(stream, {.x = x, .to = three.view()});
  quantize(stream, {.x = x, .to = four.view()});
  REQUIRE(two.packed.values() == std::vector<double>{0b10101000, 0b10101000});
  REQUIRE(three.packed.values() == std::vector<double>{0b00100000, 0b00100000});
  REQUIRE(four.packed.values() == std::vector<double>{0x80, 0x80});
}

TEST_CASE("an Inf or NaN reaches everything that shares its scale, and nothing else") {
  Stream stream(test_stream(2, kWorkspace));
  const Shape shape{70, 300};
  const double infinity = std::numeric_limits<double>::infinity();
  // Whether a value is bad and where it stands are found out apart, so that not every value is
  // needed at every place: the first, the last, and one inside whose column is the last.
  const std::vector<std::pair<double, std::size_t>> cases = {{-infinity, 0},
                                                             {std::nan(""), 31 * 300 + 299},
                                                             {-std::nan(""), 20999},
                                                             {0x1p127, 31 * 300 + 299}};
  for (const auto& [bad, at] : cases) {
    std::vector<double> values = random_values(shape.num_elements(), {});
    values[at] = bad;
    GuardedTensor x(DType::f32, shape, values);
    for (const QuantizedFormat& format : all_formats()) {
      INFO(describe(format, shape) << ", " << bad << " at " << at);
      Guarded quantized(format, shape);
      quantize(stream, {.x = x, .to = quantized.view()});
      const std::vector<double> out = decoded(stream, quantized, shape);
      const auto oracle = oracle_of(format, shape);
      if (format.shared == ScaleOf::both) {  // all share the norm
        REQUIRE(std::ranges::none_of(out, [](double value) { return std::isfinite(value); }));
        continue;
      }
      const std::size_t hit = oracle.scale_index(at / 300, at % 300);
      std::size_t num_wrong = 0;
      for (std::size_t e = 0; e < out.size(); ++e) {
        num_wrong += std::isfinite(out[e]) == (oracle.scale_index(e / 300, e % 300) == hit);
      }
      REQUIRE(num_wrong == 0);
    }
  }
}

TEST_CASE("zeros and magnitudes below 2^-119 become zeros, larger ones keep their size") {
  Stream stream(test_stream(1, kWorkspace));
  const std::vector<double> rows = {0.0, -0.0, 0x1p-140, 0x1p-120, 0x1p-119, -0x1.8p-119};
  for (const int bits : {2, 3, 4, 8}) {
    Guarded quantized({.bits = bits, .shared = ScaleOf::token}, {3, 2});
    GuardedTensor x(DType::f32, {3, 2}, rows);
    quantize(stream, {.x = x, .to = quantized.view()});
    const std::vector<double> out = decoded(stream, quantized, {3, 2});
    for (std::size_t e = 0; e < 4; ++e) {
      REQUIRE(out[e] == 0.0);
    }
    REQUIRE(out[5] == -0x1.8p-119);
  }
}

TEST_CASE("random rounding follows the words of its key, whatever the cut") {
  Stream stream(test_stream(2, kWorkspace));
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 45}, Shape{3, 2500}}) {
    GuardedTensor x = random_tensor(DType::f32, shape, {});
    for (const QuantizedFormat& format : all_formats()) {
      INFO(describe(format, shape));
      Guarded quantized(format, shape);
      quantize(stream, {.x = x, .to = quantized.view(), .stochastic = kKey});
      REQUIRE(quantized.sentinels_intact());
      const auto oracle = oracle_of(format, shape);
      std::vector<double> expected = oracle.positions(x.values());
      const DropoutKey words{.site = kKey.stream, .step = kKey.step};
      for (std::size_t e = 0; e < expected.size(); ++e) {
        const std::size_t drawn = kKey.first_element + e;
        const std::uint32_t word = dropout_words(words, kKey.message, drawn / 8)[drawn % 8 / 2];
        const std::uint32_t half = drawn % 2 == 0 ? word & 0xffffU : word >> 16U;
        expected[e] += (half + 0.5) * 0x1p-16 - 0.5;  // the nearest to this is due
      }
      const std::vector<double> codes = oracle.codes(quantized.packed.values());
      // As for nearest, and the sum of position and number is rounded too.
      REQUIRE(worst_distance(codes, expected, oracle.largest_code()) <=
              0.5 + oracle.levels() * 0x1p-22);
    }
  }
}

TEST_CASE("random rounding is right on average and leaves multiples of a step alone") {
  Stream stream(test_stream(2));
  constexpr int kSteps = 4000;
  const std::vector<double> x = {1.0, 0.25, -0.875, 0.03125, -0.3, 0.7, -0.99, 0.0};
  GuardedTensor matrix(DType::f32, {1, 8}, x);
  std::vector<double> sums(x.size());
  for (int step = 1; step <= kSteps; ++step) {
    Guarded quantized({.bits = 4, .shared = ScaleOf::token}, {1, 8});
    RoundingKey key = kKey;
    key.step = static_cast<std::uint64_t>(step);
    quantize(stream, {.x = matrix, .to = quantized.view(), .stochastic = key});
    const std::vector<double> out = decoded(stream, quantized, {1, 8});
    REQUIRE(out[1] == x[1]);
    REQUIRE(out[2] == x[2]);
    for (std::size_t e = 0; e < x.size(); ++e) {
      sums[e] += out[e];
    }
  }
  // Five deviations of a mean of draws that differ by one step of 1/8.
  const double allowed = 5.0 * 0.5 * 0.125 / std::sqrt(kSteps);
  for (std::size_t e = 1; e < x.size(); ++e) {  // element 0 is clipped
    INFO("element " << e);
    REQUIRE(std::abs(sums[e] / kSteps - x[e]) <= allowed);
  }
}

TEST_CASE("random numbers change with stream, step, message and place, and with nothing else") {
  Stream stream(test_stream(1));
  GuardedTensor x = random_tensor(DType::f32, {10, 100}, {});
  const auto bytes = [&](const RoundingKey& key) {
    Guarded quantized({.bits = 2}, {10, 100});
    quantize(stream, {.x = x, .to = quantized.view(), .stochastic = key});
    return quantized.bytes();
  };
  const auto changed = [&](auto change) {
    RoundingKey key = kKey;
    change(key);
    return bytes(key);
  };
  REQUIRE(bytes(kKey) == bytes(kKey));
  REQUIRE(bytes(kKey) != changed([](RoundingKey& key) { key.stream = {12, 35}; }));
  REQUIRE(bytes(kKey) != changed([](RoundingKey& key) { key.step = 6; }));
  REQUIRE(bytes(kKey) != changed([](RoundingKey& key) { key.message = 7; }));
  REQUIRE(bytes(kKey) != changed([](RoundingKey& key) { key.first_element = 22; }));
}

TEST_CASE("decoding adds to or takes off what is there, rounded once") {
  Stream stream(test_stream(2, kWorkspace));
  const Shape shape{9, 2100};
  GuardedTensor x = random_tensor(DType::f32, shape, {.seed = 1});
  for (const QuantizedFormat& format : all_formats()) {
    INFO(describe(format, shape));
    Guarded quantized(format, shape);
    quantize(stream, {.x = x, .to = quantized.view()});
    const std::vector<double> addend = decoded(stream, quantized, shape);
    GuardedTensor more = random_tensor(DType::f32, shape, {.seed = 2});
    GuardedTensor less = more;
    std::vector<double> sums = more.values();
    std::vector<double> differences = sums;
    for (std::size_t e = 0; e < addend.size(); ++e) {
      sums[e] = static_cast<float>(sums[e] + addend[e]);
      differences[e] = static_cast<float>(differences[e] - addend[e]);
    }
    dequantize(stream, quantized.view(), more, Update::add);
    dequantize(stream, quantized.view(), less, Update::subtract);
    REQUIRE(more.values() == sums);
    REQUIRE(less.values() == differences);
    REQUIRE(more.sentinels_intact());
  }
}

TEST_CASE("with a sum, x is added to it and the sum is quantized") {
  Stream stream(test_stream(2, kWorkspace));
  const Shape shape{67, 130};
  GuardedTensor x = random_tensor(DType::f32, shape, {.seed = 1});
  GuardedTensor sum = random_tensor(DType::f32, shape, {.seed = 2});
  std::vector<double> total = sum.values();
  const std::vector<double> addend = x.values();
  for (std::size_t e = 0; e < total.size(); ++e) {
    total[e] = static_cast<float>(total[e] + addend[e]);
  }
  GuardedTensor added(DType::f32, shape, total);
  for (const QuantizedFormat& format : all_formats()) {
    INFO(describe(format, shape));
    Guarded expected(format, shape);
    Guarded quantized(format, shape);
    GuardedTensor growing = sum;
    quantize(stream, {.x = added, .to = expected.view()});
    quantize(stream, {.x = x, .sum = growing, .to = quantized.view()});
    REQUIRE(growing.values() == total);
    REQUIRE(growing.sentinels_intact());
    REQUIRE(quantized.bytes() == expected.bytes());
  }
}

TEST_CASE("quantized matrices have the same bits for any number of threads") {
  // A CUDA device has its own threads, and takes a minute for the larger shape where it is
  // emulated.
  const Shape shape = test_device() == Device::cuda ? Shape{20, 300} : Shape{150, 1111};
  GuardedTensor x = random_tensor(DType::f32, shape, {});
  for (const QuantizedFormat& format : all_formats()) {
    for (const bool is_random : {false, true}) {
      require_same_bits_for_any_thread_count(kWorkspace, [&](StreamView stream) {
        Guarded quantized(format, shape);
        Quantize args{.x = x, .to = quantized.view()};
        if (is_random) {
          args.stochastic = kKey;
        }
        quantize(stream, args);
        GuardedTensor out(DType::f32, shape);
        dequantize(stream, quantized.view(), out);
        std::vector<std::byte> bytes = out.bytes();
        const std::vector<std::byte> more = quantized.bytes();
        bytes.insert(bytes.end(), more.begin(), more.end());
        return bytes;
      });
    }
  }
}

TEST_CASE("every device makes the CPU's codes") {
  // Two of each device's blocks of rows, of columns and of all elements, the last ones cut short.
  const Shape shape{70, 1111};
  GuardedTensor x = random_tensor(DType::f32, shape, {});
  Stream cpu({.workspace_bytes = kWorkspace});
  Stream stream(test_stream(1, kWorkspace));
  for (const QuantizedFormat& format : all_formats()) {
    for (const bool is_random : {false, true}) {
      INFO(describe(format, shape) << (is_random ? ", at random" : ""));
      Guarded expected(format, shape);
      Guarded quantized(format, shape);
      Quantize args{.x = x, .to = expected.view()};
      if (is_random) {
        args.stochastic = kKey;
      }
      quantize(cpu, args);
      args.to = quantized.view();
      quantize(stream, args);
      REQUIRE(quantized.bytes() == expected.bytes());
    }
  }
}

TEST_CASE("scratch of quantize is what it says") {
  for (const ScaleOf shared : {ScaleOf::channel, ScaleOf::token, ScaleOf::tensor, ScaleOf::both}) {
    const Shape shape{200, 333};
    const std::size_t bytes = quantize_workspace_bytes(shared, shape[0], shape[1], test_workers());
    Stream stream(test_stream(1, bytes));
    GuardedTensor x = random_tensor(DType::f32, shape, {});
    Guarded quantized({.bits = 4, .shared = shared}, shape);
    quantize(stream, {.x = x, .to = quantized.view()});
    REQUIRE(stream.workspace().high_water() == bytes);
  }
}

TEST_CASE("quantize refuses what does not fit") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {4, 10});
  Guarded quantized({.bits = 4}, {4, 10});
  QuantizedMatrix wrong = quantized.view();
  wrong.format.bits = 5;
  REQUIRE_THROWS_WITH(quantize(stream, {.x = x, .to = wrong}), Catch::Contains("5 bits"));
  wrong.format.bits = 8;
  REQUIRE_THROWS_WITH(quantize(stream, {.x = x, .to = wrong}),
                      Catch::Contains("numbers is u8 (4, 5), due is u8 (4, 10)"));
  wrong.format = {.bits = 4, .shared = ScaleOf::channel};
  REQUIRE_THROWS_WITH(dequantize(stream, wrong, x), Catch::Contains("due is bf16 (10)"));
  wrong.format = {.bits = 4, .shared = ScaleOf::group};
  REQUIRE_THROWS_WITH(dequantize(stream, wrong, x), Catch::Contains("groups of 0"));
}

}  // namespace slackline::testing
