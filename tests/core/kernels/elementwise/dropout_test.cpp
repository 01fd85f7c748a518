#include "core/kernels/elementwise/dropout.h"

#include <array>

#include "tests/reference/dropout_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

const DropoutKey kKey{.probability = 0.3F,
                      .site = philox_key(1234, "dropout/h.0.attn"),
                      .step = 7,
                      .first_sample = 100};

// f32: the float factor, a product and a sum. bf16: half a unit for the one rounding.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 1e-6, .absolute = 1e-6}
                             : Tolerance{.relative = 0x1p-8, .absolute = 1e-6};
}

std::vector<double> expected_sum(const std::vector<double>& x,
                                 const std::vector<double>& factors,
                                 const std::vector<double>& residual) {
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out[i] = x[i] * factors[i] + (residual.empty() ? 0.0 : residual[i]);
  }
  return out;
}

// The type of residual and output, and that of x, which may be a sum in f32.
struct Types {
  DType out{};
  DType x{};
};

constexpr std::array<Types, 3> kTypes = {
    {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}}};

}  // namespace

TEST_CASE("dropout keeps what the key says, scales it and adds the residual") {
  Stream stream(test_stream(2));
  for (const auto& [dtype, x_dtype] : kTypes) {
    for (const Shape& shape : {Shape{0, 3}, Shape{1}, Shape{3, 5, 7}, Shape{2, 40, 1001}}) {
      INFO(name_of(dtype) << " from " << name_of(x_dtype) << " " << shape);
      GuardedTensor x = random_tensor(x_dtype, shape, {.seed = 1});
      GuardedTensor residual = random_tensor(dtype, shape, {.seed = 2});
      GuardedTensor out(dtype, shape);
      GuardedTensor alone(dtype, shape);
      dropout_add(stream, {.x = x, .residual = residual, .out = out, .key = kKey});
      dropout_add(stream, {.x = x, .out = alone, .key = kKey});
      const auto num_samples = static_cast<std::size_t>(shape[0]);
      const std::size_t per_sample = num_samples == 0 ? 0 : shape.num_elements() / num_samples;
      const auto factors = reference::dropout_factors(kKey, num_samples, per_sample);
      REQUIRE(worst_mismatch(out.values(),
                             expected_sum(x.values(), factors, residual.values()),
                             tolerance(dtype)) == "");
      REQUIRE(worst_mismatch(
                  alone.values(), expected_sum(x.values(), factors, {}), tolerance(dtype)) == "");
      REQUIRE(out.sentinels_intact());
    }
  }
}

TEST_CASE("probability 0 draws nothing: the sum is exact") {
  Stream stream(test_stream(2));
  for (const auto& [dtype, x_dtype] : kTypes) {
    GuardedTensor x = random_tensor(x_dtype, {3, 777}, {.seed = 1});
    GuardedTensor residual = random_tensor(dtype, {3, 777}, {.seed = 2});
    GuardedTensor out(dtype, {3, 777});
    dropout_add(stream, {.x = x, .residual = residual, .out = out});
    const std::vector<double> ones(x.values().size(), 1.0);
    REQUIRE(worst_mismatch(out.values(),
                           expected_sum(x.values(), ones, residual.values()),
                           {.relative = dtype == DType::f32 ? 0x1p-24 : 0x1p-8}) == "");
    dropout_add(stream, {.x = x, .out = out});
    REQUIRE((dtype != x_dtype || out.bytes() == x.bytes()));
  }
}

TEST_CASE("a sample's mask depends on its global index, not on the micro-batch it is in") {
  Stream stream(test_stream(1));
  GuardedTensor x = random_tensor(DType::f32, {4, 50}, {});
  GuardedTensor whole(DType::f32, {4, 50});
  dropout_add(stream, {.x = x, .out = whole, .key = kKey});
  GuardedTensor half(DType::f32, {4, 50});
  DropoutKey later = kKey;
  later.first_sample = kKey.first_sample + 2;
  dropout_add(stream, {.x = x.view().rows(0, 2), .out = half.view().rows(0, 2), .key = kKey});
  dropout_add(stream, {.x = x.view().rows(2, 4), .out = half.view().rows(2, 4), .key = later});
  REQUIRE(half.bytes() == whole.bytes());
}

TEST_CASE("rows that begin inside a sample get the masks of the whole tensor") {
  constexpr std::int64_t kB = 3;
  constexpr std::int64_t kT = 14;
  constexpr std::int64_t kN = kB * kT;
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t C : {1, 7, 64, 2500}) {  // 2500: several tasks a sample
      GuardedTensor x = random_tensor(dtype, {kN, C}, {.seed = 1});
      GuardedTensor residual = random_tensor(dtype, {kN, C}, {.seed = 2});
      GuardedTensor whole(dtype, {kN, C});
      const Shape by_sample{kB, kT, C};
      dropout_add(stream,
                  {.x = x.view().reshaped(by_sample),
                   .residual = residual.view().reshaped(by_sample),
                   .out = whole.view().reshaped(by_sample),
                   .key = kKey});
      for (const std::int64_t num_rows : {1, 2, 3, 6, 14, 21, 42}) {
        INFO(name_of(dtype) << " " << C << " columns, " << num_rows << " rows at a time");
        GuardedTensor out(dtype, {kN, C});
        for (std::int64_t row = 0; row < kN; row += num_rows) {
          dropout_add(stream,
                      {.x = x.view().rows(row, row + num_rows),
                       .residual = residual.view().rows(row, row + num_rows),
                       .out = out.view().rows(row, row + num_rows),
                       .key = kKey,
                       .first_row = row,
                       .rows_per_sample = kT});
        }
        REQUIRE(out.bytes() == whole.bytes());
        REQUIRE(out.sentinels_intact());
      }
    }
  }
}

TEST_CASE("dropout may overwrite its input or its residual") {
  Stream stream(test_stream(1));
  GuardedTensor x = random_tensor(DType::bf16, {2, 999}, {.seed = 1});
  GuardedTensor residual = random_tensor(DType::bf16, {2, 999}, {.seed = 2});
  GuardedTensor out(DType::bf16, {2, 999});
  dropout_add(stream, {.x = x, .residual = residual, .out = out, .key = kKey});
  GuardedTensor in_place = x;
  dropout_add(stream, {.x = in_place, .residual = residual, .out = in_place, .key = kKey});
  dropout_add(stream, {.x = x, .residual = residual, .out = residual, .key = kKey});
  REQUIRE(in_place.bytes() == out.bytes());
  REQUIRE(residual.bytes() == out.bytes());
}

TEST_CASE("dropout gives the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    GuardedTensor x = random_tensor(DType::f32, {3, 40001}, {});
    dropout_add(stream, {.x = x, .out = x, .key = kKey});
    return x.bytes();
  });
}

TEST_CASE("dropout refuses probability 1") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {2, 2});
  DropoutKey key = kKey;
  key.probability = 1.0F;
  REQUIRE_THROWS_WITH(dropout_add(stream, {.x = x, .out = x, .key = key}),
                      Catch::Contains("probability 1"));
}

}  // namespace slackline::testing
