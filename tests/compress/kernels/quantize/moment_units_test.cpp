#include "compress/kernels/quantize/moment_units.h"

#include <cmath>

#include "core/kernels/update/sum_of_squares.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::size_t kWorkspace = std::size_t{1} << 20U;

// Second moments of many sizes, a few of them zero.
std::vector<double> moments_of(const Shape& shape) {
  std::vector<double> values = random_values(shape.num_elements(), {.seed = 5});
  for (std::size_t e = 0; e < values.size(); ++e) {
    const double root = values[e] * std::exp2(-static_cast<double>(e % 9));
    values[e] = e % 17 == 0 ? 0.0 : static_cast<double>(static_cast<float>(root * root));
  }
  return values;
}

float floor_of(const std::vector<double>& moments) {
  double squares = 0.0;
  for (const double moment : moments) {
    squares += moment * moment;
  }
  const double mean = squares / static_cast<double>(moments.size());
  return static_cast<float>(BFloat16(static_cast<float>(0x1p-10 * std::pow(mean, 0.25))));
}

float unit_of(double moment, float floor) {
  return std::sqrt(static_cast<float>(moment)) + floor;
}

}  // namespace

TEST_CASE("units of moments divide, and multiply again, each rounded once") {
  Stream stream(test_stream(2, kWorkspace));
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 33}, Shape{131, 257}}) {
    INFO(shape.to_string());
    const std::vector<double> moments = moments_of(shape);
    GuardedTensor v(DType::f32, shape, moments);
    GuardedTensor x = random_tensor(DType::f32, shape, {.seed = 1});
    const MomentUnits units = moment_units(stream, v);
    if (shape.num_elements() > 1) {
      REQUIRE(units.floor == floor_of(moments));
    }
    GuardedTensor quotients(DType::f32, shape);
    divide_by_units(stream, x, units, quotients);
    const std::vector<double> values = x.values();
    std::vector<double> expected(values.size());
    for (std::size_t e = 0; e < values.size(); ++e) {
      expected[e] = static_cast<float>(values[e]) / unit_of(moments[e], units.floor);
    }
    REQUIRE(quotients.values() == expected);
    for (const Update update : {Update::write, Update::add, Update::subtract}) {
      GuardedTensor out = random_tensor(DType::f32, shape, {.seed = 2});
      const std::vector<double> before = out.values();
      multiply_by_units(stream, x, units, out, update);
      for (std::size_t e = 0; e < values.size(); ++e) {
        const float value = static_cast<float>(values[e]);
        const float unit = unit_of(moments[e], units.floor);
        const float old = static_cast<float>(before[e]);
        expected[e] = update == Update::write ? value * unit
                      : update == Update::add ? std::fma(value, unit, old)
                                              : std::fma(-value, unit, old);
      }
      REQUIRE(out.values() == expected);
      REQUIRE(out.sentinels_intact());
    }
    REQUIRE(quotients.sentinels_intact());
  }
}

TEST_CASE("where all moments are zero units are 1, and the smallest ones still divide") {
  Stream stream(test_stream(1, kWorkspace));
  const Shape shape{3, 40};
  GuardedTensor x = random_tensor(DType::f32, shape, {.seed = 3});
  for (const double moment : {0.0, 0x1p-149}) {
    GuardedTensor v(DType::f32, shape, std::vector<double>(shape.num_elements(), moment));
    GuardedTensor quotients(DType::f32, shape);
    const MomentUnits units = moment_units(stream, v);
    divide_by_units(stream, x, units, quotients);
    if (moment == 0.0) {
      REQUIRE(units.floor == 1.0F);
      REQUIRE(quotients.values() == x.values());
    } else {
      REQUIRE(units.floor > 0.0F);
      for (const double quotient : quotients.values()) {
        REQUIRE(std::isfinite(quotient));
      }
    }
  }
}

TEST_CASE("quotients of moments have the same bits for any number of threads") {
  const Shape shape{211, 301};
  const Tensor described(nullptr, DType::f32, shape);
  require_same_bits_for_any_thread_count(
      sums_of_squares_workspace_bytes({&described, 1}, test_workers(3)), [&](StreamView stream) {
        GuardedTensor v(DType::f32, shape, moments_of(shape));
        GuardedTensor x = random_tensor(DType::f32, shape, {.seed = 4});
        GuardedTensor quotients(DType::f32, shape);
        divide_by_units(stream, x, moment_units(stream, v), quotients);
        return quotients.bytes();
      });
}

}  // namespace slackline::testing
