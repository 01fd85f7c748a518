#include "core/kernels/norm/layer_norm.h"

#include <numeric>

#include "tests/reference/layer_norm_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Size {
  std::int64_t N;
  std::int64_t C;
};

// The last two are read twice by the CUDA device's backward pass, in f32 or in both types, in
// several groups of rows. The one before them has a block for itself, which takes more rows than
// its shared memory holds.
constexpr Size kSizes[] = {
    {0, 8}, {1, 1}, {1, 16}, {3, 17}, {33, 100}, {70, 768}, {18, 3000}, {18, 4104}, {18, 8200}};

// f32: a few roundings of 6e-8 on values of order 1 to 5, sums over C in 16 lanes.
// bf16: half a unit of its 8 bits for the one rounding of the result.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 2e-6, .absolute = 2e-6}
                             : Tolerance{.relative = 0x1p-8, .absolute = 1e-4};
}

// dx is proportional to rstd, which is 1 / sqrt(epsilon) = 316 for a row of one element.
Tolerance dx_tolerance(DType dtype, Size size) {
  Tolerance result = tolerance(dtype);
  result.absolute *= size.C == 1 ? 316.0 : 1.0;
  return result;
}

// Inputs of one call, and everything it may write.
struct Case {
  Case(DType dtype, Size size) : Case(dtype, dtype, size) {}

  // dy may be a sum in f32.
  Case(DType dtype, DType dy_dtype, Size size)
      : x(random_tensor(dtype, {size.N, size.C}, {.seed = 1, .deviation = 2.0, .mean = 0.5})),
        dy(random_tensor(dy_dtype, {size.N, size.C}, {.seed = 2})),
        weight(random_tensor(DType::f32, {size.C}, {.seed = 3, .deviation = 0.3, .mean = 1.0})),
        bias(random_tensor(DType::f32, {size.C}, {.seed = 4})),
        y(dtype, {size.N, size.C}),
        dx(dtype, {size.N, size.C}),
        mean(DType::f32, {size.N}),
        rstd(DType::f32, {size.N}),
        d_weight(random_tensor(DType::f32, {size.C}, {.seed = 5})),
        d_bias(random_tensor(DType::f32, {size.C}, {.seed = 6})),
        oracle{static_cast<std::size_t>(size.C), weight.values(), bias.values()} {}

  void forward(StreamView stream) {
    layer_norm_forward(
        stream, {.x = x, .weight = weight, .bias = bias, .y = y, .mean = mean, .rstd = rstd});
  }

  void backward(StreamView stream, Accumulate accumulate) {
    layer_norm_backward(stream,
                        {.x = x,
                         .weight = weight,
                         .mean = mean,
                         .rstd = rstd,
                         .dy = dy,
                         .dx = dx,
                         .accumulate_dx = accumulate,
                         .d_weight = d_weight,
                         .d_bias = d_bias});
  }

  [[nodiscard]] bool sentinels_intact() const {
    return y.sentinels_intact() && dx.sentinels_intact() && mean.sentinels_intact() &&
           rstd.sentinels_intact() && d_weight.sentinels_intact() && d_bias.sentinels_intact();
  }

  GuardedTensor x, dy, weight, bias, y, dx, mean, rstd, d_weight, d_bias;
  reference::LayerNorm oracle;
};

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
  return a;
}

}  // namespace

TEST_CASE("layer norm matches the oracle, forward and backward") {
  using Types = std::pair<DType, DType>;
  for (const auto& [dtype, dy_dtype] : {Types{DType::f32, DType::f32},
                                        Types{DType::bf16, DType::bf16},
                                        Types{DType::bf16, DType::f32}}) {
    for (const Size size : kSizes) {
      INFO(name_of(dtype) << ", dy " << name_of(dy_dtype) << " " << size.N << " x " << size.C);
      Stream stream(test_stream(2, layer_norm_workspace_bytes(size.N, size.C, test_workers())));
      Case test(dtype, dy_dtype, size);
      const std::vector<double> x = test.x.values();
      const auto expected = test.oracle.backward(x, test.dy.values());
      const std::vector<double> d_weight = sum(test.d_weight.values(), expected.d_weight);
      const std::vector<double> d_bias = sum(test.d_bias.values(), expected.d_bias);

      test.forward(stream);
      test.backward(stream, Accumulate::no);
      REQUIRE(worst_mismatch(test.y.values(), test.oracle.forward(x), tolerance(dtype)) == "");
      REQUIRE(worst_mismatch(test.dx.values(), expected.dx, dx_tolerance(dtype, size)) == "");
      // Sums over at most 70 rows, kept in f32 for both types.
      REQUIRE(worst_mismatch(test.d_weight.values(), d_weight, {2e-6, 2e-5}) == "");
      REQUIRE(worst_mismatch(test.d_bias.values(), d_bias, {2e-6, 2e-5}) == "");
      REQUIRE(test.sentinels_intact());
      REQUIRE(stream.workspace().high_water() ==
              layer_norm_workspace_bytes(size.N, size.C, test_workers()));
    }
  }
}

TEST_CASE("layer norm keeps the mean and reciprocal deviation of each row") {
  Stream stream(test_stream(1));
  Case test(DType::f32, {7, 33});
  test.forward(stream);
  const std::vector<double> x = test.x.values();
  for (std::size_t row = 0; row < 7; ++row) {
    const auto expected = test.oracle.statistics(&x[row * 33]);
    REQUIRE(test.mean.values()[row] == Approx(expected.mean).margin(1e-6));
    REQUIRE(test.rstd.values()[row] == Approx(expected.rstd).epsilon(1e-6));
  }
}

TEST_CASE("the variance of a row far from zero is not lost to cancellation") {
  Stream stream(test_stream(1));
  Case test(DType::f32, {1, 64});
  std::vector<double> x = random_values(64, {.seed = 9, .mean = 1000.0});
  test.x.set(x);
  test.forward(stream);
  // The mean rounds to 6e-5 (half a unit at 1000), which moves y by as much; a one-pass variance
  // would be wrong by 6e-2.
  REQUIRE(worst_mismatch(
              test.y.values(), test.oracle.forward(test.x.values()), {.absolute = 3e-4}) == "");
}

TEST_CASE("layer norm's dx is written, or added on demand") {
  using Types = std::pair<DType, DType>;
  for (const auto& [dtype, dy_dtype] : {Types{DType::f32, DType::f32},
                                        Types{DType::bf16, DType::bf16},
                                        Types{DType::bf16, DType::f32}}) {
    for (const Size size :
         {Size{3, 17}, Size{5, 40}, Size{70, 768}, Size{18, 3000}, Size{18, 4104}, Size{5, 8200}}) {
      INFO(name_of(dtype) << ", dy " << name_of(dy_dtype) << " " << size.N << " x " << size.C);
      Stream stream(test_stream(1, layer_norm_workspace_bytes(size.N, size.C, test_workers())));
      Case test(dtype, dy_dtype, size);
      test.dx.fill(1.0);
      test.forward(stream);
      test.backward(stream, Accumulate::yes);
      const auto expected = test.oracle.backward(test.x.values(), test.dy.values());
      const std::vector<double> ones(expected.dx.size(), 1.0);
      REQUIRE(worst_mismatch(test.dx.values(), sum(expected.dx, ones), tolerance(dtype)) == "");
    }
  }
}

TEST_CASE("the layer norm oracle's gradients agree with finite differences") {
  const Case test(DType::f32, {3, 5});
  const std::vector<double> x = test.x.values();
  const std::vector<double> dy = test.dy.values();
  const auto gradients = test.oracle.backward(x, dy);
  const auto loss = [&dy](const reference::LayerNorm& norm, const std::vector<double>& at) {
    const std::vector<double> y = norm.forward(at);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  const auto of_x = [&](const std::vector<double>& at) { return loss(test.oracle, at); };
  const auto of_weight = [&](const std::vector<double>& at) {
    reference::LayerNorm norm = test.oracle;
    norm.weight = at;
    return loss(norm, x);
  };
  const auto of_bias = [&](const std::vector<double>& at) {
    reference::LayerNorm norm = test.oracle;
    norm.bias = at;
    return loss(norm, x);
  };
  const Tolerance tight{.relative = 1e-7, .absolute = 1e-8};
  REQUIRE(worst_mismatch(gradients.dx, finite_differences(of_x, x), tight) == "");
  REQUIRE(worst_mismatch(
              gradients.d_weight, finite_differences(of_weight, test.oracle.weight), tight) == "");
  REQUIRE(worst_mismatch(gradients.d_bias, finite_differences(of_bias, test.oracle.bias), tight) ==
          "");
}

TEST_CASE("layer norm gives the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(
      layer_norm_workspace_bytes(200, 130, test_workers()), [](StreamView stream) {
        Case test(DType::f32, {200, 130});
        test.forward(stream);
        test.backward(stream, Accumulate::no);
        std::vector<std::byte> bytes = test.y.bytes();
        for (const GuardedTensor* tensor : {&test.dx, &test.d_weight, &test.d_bias}) {
          const std::vector<std::byte> more = tensor->bytes();
          bytes.insert(bytes.end(), more.begin(), more.end());
        }
        return bytes;
      });
}

TEST_CASE("gradients of a norm's weight and bias may be left out, and dx has the same bits") {
  Stream stream(test_stream(2, layer_norm_workspace_bytes(70, 33, test_workers())));
  Case both(DType::f32, {70, 33});
  both.forward(stream);
  both.backward(stream, Accumulate::no);
  const auto run = [&](Case& test, bool weight, bool bias) {
    test.forward(stream);
    layer_norm_backward(stream,
                        {.x = test.x,
                         .weight = test.weight,
                         .mean = test.mean,
                         .rstd = test.rstd,
                         .dy = test.dy,
                         .dx = test.dx,
                         .d_weight = weight ? test.d_weight.view() : Tensor(),
                         .d_bias = bias ? test.d_bias.view() : Tensor()});
    REQUIRE(test.dx.bytes() == both.dx.bytes());
  };
  Case weight(DType::f32, {70, 33});
  run(weight, true, false);
  REQUIRE(weight.d_weight.bytes() == both.d_weight.bytes());
  REQUIRE(weight.d_bias.bytes() != both.d_bias.bytes());
  Case bias(DType::f32, {70, 33});
  run(bias, false, true);
  REQUIRE(bias.d_bias.bytes() == both.d_bias.bytes());
  REQUIRE(bias.d_weight.bytes() != both.d_weight.bytes());
  Case none(DType::f32, {70, 33});
  run(none, false, false);
}

TEST_CASE("layer norm refuses a weight of another width") {
  Stream stream(test_stream(1));
  Case test(DType::f32, {2, 4});
  GuardedTensor weight(DType::f32, {3});
  REQUIRE_THROWS_WITH(layer_norm_forward(stream,
                                         {.x = test.x,
                                          .weight = weight,
                                          .bias = test.bias,
                                          .y = test.y,
                                          .mean = test.mean,
                                          .rstd = test.rstd}),
                      Catch::Contains("layer_norm_forward weight is f32 (3), due is f32 (4)"));
}

TEST_CASE("the norm of a residual sum is the sum's norm") {
  struct Types {
    DType out{};
    DType branch{};
  };

  constexpr Types kTypes[] = {
      {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};
  Stream stream(test_stream(2));
  for (const auto& [dtype, branch_dtype] : kTypes) {
    for (const Size size : {Size{1, 8}, Size{5, 17}, Size{33, 96}, Size{70, 768}, Size{3, 4096}}) {
      for (const float probability : {0.0F, 0.3F}) {
        INFO(name_of(dtype) << " from " << name_of(branch_dtype) << ", " << size.N << " x "
                            << size.C << ", probability " << probability);
        GuardedTensor branch = random_tensor(branch_dtype, {size.N, size.C}, {.seed = 1});
        GuardedTensor residual = random_tensor(dtype, {size.N, size.C}, {.seed = 2});
        GuardedTensor expected(dtype, {size.N, size.C});
        DropoutAdd sum{.x = branch,
                       .residual = residual,
                       .out = expected,
                       .key = {.probability = probability,
                               .site = philox_key(1234, "dropout/h.0.attn"),
                               .step = 7,
                               .first_sample = 100},
                       .first_row = 9,  // rows begin and end inside samples
                       .rows_per_sample = 4};
        dropout_add(stream, sum);
        Case made(dtype, size);
        sum.out = made.x;
        layer_norm_of_sum(stream,
                          sum,
                          {.x = made.x,
                           .weight = made.weight,
                           .bias = made.bias,
                           .y = made.y,
                           .mean = made.mean,
                           .rstd = made.rstd});
        stream.synchronize();
        REQUIRE(made.x.bytes() == expected.bytes());
        Case apart(dtype, size);
        apart.x = std::move(expected);
        apart.forward(stream);
        stream.synchronize();
        REQUIRE(made.y.bytes() == apart.y.bytes());
        REQUIRE(made.mean.bytes() == apart.mean.bytes());
        REQUIRE(made.rstd.bytes() == apart.rstd.bytes());
        REQUIRE(made.x.sentinels_intact());
        REQUIRE(made.y.sentinels_intact());
      }
    }
  }
}

}  // namespace slackline::testing
