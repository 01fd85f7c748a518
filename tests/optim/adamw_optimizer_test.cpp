#include "optim/adamw_optimizer.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/reference/adamw_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/gradient_norm.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

// Three tensors whose order differs from their names' order; only the matrix decays.
struct Model {
  Model()
      : matrix(random_tensor(DType::f32, {30, 41}, {.seed = 1})),
        bias(random_tensor(DType::f32, {41}, {.seed = 2})),
        table(random_tensor(DType::f32, {17, 30}, {.seed = 3})),
        d_matrix(random_tensor(DType::f32, {30, 41}, {.seed = 4})),
        d_bias(random_tensor(DType::f32, {41}, {.seed = 5})),
        d_table(random_tensor(DType::f32, {17, 30}, {.seed = 6})),
        copy(DType::bf16, {30, 41}) {}

  [[nodiscard]] std::vector<OptimizedTensor> tensors() {
    return {{.name = "wte.weight", .weight = table, .gradient = d_table},
            {.name = "h.0.weight",
             .weight = matrix,
             .gradient = d_matrix,
             .weight_copy = copy,
             .decay = WeightDecay::yes},
            {.name = "h.0.bias", .weight = bias, .gradient = d_bias}};
  }

  [[nodiscard]] double exact_norm() const {
    double sum = 0.0;
    for (const GuardedTensor* gradient : {&d_matrix, &d_bias, &d_table}) {
      for (const double value : gradient->values()) {
        sum += value * value;
      }
    }
    return std::sqrt(sum);
  }

  GuardedTensor matrix, bias, table, d_matrix, d_bias, d_table, copy;
};

// The oracle's state of a tensor before the first step.
reference::AdamwState initial_state(const GuardedTensor& weight) {
  const std::vector<double> zeros(weight.values().size());
  return {weight.values(), zeros, zeros};
}

constexpr Tolerance kTolerance{.relative = 2e-6, .absolute = 1e-7};  // as in adamw_test.cpp

}  // namespace

TEST_CASE("the gradient norm is that of all tensors together") {
  Stream stream(test_stream(2));
  Model model;
  const AdamwOptimizer optimizer(model.tensors(), {});
  REQUIRE(gradient_norm(optimizer, stream) == Approx(model.exact_norm()).epsilon(1e-13));
  REQUIRE(optimizer.squared_norms(stream).size() == 3);
}

TEST_CASE("a step clips, decays matrices alone and keeps the bf16 copies") {
  Stream stream(test_stream(2));
  Model model;
  const OptimizerConfig config{.weight_decay = 0.5, .clip_norm = 2.0};
  reference::AdamwState matrix = initial_state(model.matrix);
  reference::AdamwState bias = initial_state(model.bias);
  AdamwOptimizer optimizer(model.tensors(), config);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const double norm = gradient_norm(optimizer, stream);
    AdamwStep expected{.lr = 0.01,
                       .beta1 = config.beta1,
                       .beta2 = config.beta2,
                       .eps = config.eps,
                       .gradient_scale = 2.0 / (model.exact_norm() + 1e-6),
                       .step = step};
    bias.update(model.d_bias.values(), expected);
    expected.weight_decay = 0.5;
    matrix.update(model.d_matrix.values(), expected);
    optimizer.step(stream, 0.01, norm);
    REQUIRE(optimizer.step_count() == step);
  }
  REQUIRE(worst_mismatch(model.matrix.values(), matrix.weight, kTolerance) == "");
  REQUIRE(worst_mismatch(model.bias.values(), bias.weight, kTolerance) == "");
  REQUIRE(model.copy.bytes() ==
          GuardedTensor(DType::bf16, {30, 41}, model.matrix.values()).bytes());
  REQUIRE(model.matrix.sentinels_intact());
}

TEST_CASE("gradients below the clip norm, or with clipping off, are taken as they are") {
  Stream stream(test_stream(1));
  Model clipped;
  Model free;
  AdamwOptimizer wide(clipped.tensors(), {.clip_norm = 1e6});
  AdamwOptimizer off(free.tensors(), {.clip_norm = 0.0});
  wide.step(stream, 0.01, gradient_norm(wide, stream));
  off.step(stream, 0.01, gradient_norm(off, stream));
  REQUIRE(clipped.matrix.bytes() == free.matrix.bytes());
}

TEST_CASE("moments and step count carried over continue bit for bit") {
  Stream stream(test_stream(2));
  Model whole;
  Model resumed;
  AdamwOptimizer first(whole.tensors(), {});
  AdamwOptimizer second(resumed.tensors(), {});
  const auto step = [&](AdamwOptimizer& optimizer) {
    optimizer.step(stream, 0.01, gradient_norm(optimizer, stream));
  };
  step(first);
  step(second);

  AdamwOptimizer third(resumed.tensors(), {});
  third.set_step_count(second.step_count());
  for (const OptimizedTensor& tensor : second.tensors()) {
    const auto copy = [](const Tensor& from, const Tensor& to) {
      std::copy_n(from.data<float>(), from.num_elements(), to.data<float>());
    };
    copy(second.first_moment(tensor.name), third.first_moment(tensor.name));
    copy(second.second_moment(tensor.name), third.second_moment(tensor.name));
  }
  step(first);
  step(third);
  REQUIRE(resumed.matrix.bytes() == whole.matrix.bytes());
  REQUIRE(resumed.table.bytes() == whole.table.bytes());
}

TEST_CASE("the first tensor with a bad gradient is named") {
  Stream stream(test_stream(1));
  Model model;
  AdamwOptimizer optimizer(model.tensors(), {});
  REQUIRE(optimizer.first_non_finite(stream) == std::nullopt);
  model.d_bias.view().data<float>()[40] = std::nanf("");
  REQUIRE(optimizer.first_non_finite(stream) == "h.0.bias");
  model.d_matrix.view().data<float>()[0] = std::numeric_limits<float>::infinity();
  REQUIRE(optimizer.first_non_finite(stream) == "h.0.weight");
  REQUIRE_FALSE(std::isfinite(gradient_norm(optimizer, stream)));
  REQUIRE_THROWS_WITH(optimizer.step(stream, 0.01, gradient_norm(optimizer, stream)),
                      Catch::Contains("gradient norm"));
  REQUIRE(optimizer.step_count() == 0);
}

TEST_CASE("the optimizer takes the bytes it announces") {
  Model model;
  const AdamwOptimizer optimizer(model.tensors(), {});
  const std::vector<Shape> shapes = {{17, 30}, {30, 41}, {41}};
  // 510, 1230 and 41 floats, each rounded up to 16.
  REQUIRE(AdamwOptimizer::moment_bytes(shapes) == std::size_t{8} * (512 + 1232 + 48));
  REQUIRE(AdamwOptimizer::moment_bytes({}) == 0);
}

TEST_CASE("two tensors of one name, and names that do not exist, are bugs") {
  Model model;
  std::vector<OptimizedTensor> tensors = model.tensors();
  const AdamwOptimizer optimizer(tensors, {});
  REQUIRE_THROWS_WITH(optimizer.first_moment("h.1.bias"), Catch::Contains("h.1.bias"));
  tensors[0].name = "h.0.bias";
  REQUIRE_THROWS_WITH(AdamwOptimizer(tensors, {}), Catch::Contains("two tensors are named"));
}

// Longer than what one thread takes at once.
TEST_CASE("updates have the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    GuardedTensor weight = random_tensor(DType::f32, {1000, 201}, {.seed = 1});
    GuardedTensor gradient = random_tensor(DType::f32, {1000, 201}, {.seed = 2});
    AdamwOptimizer optimizer({{.name = "wte.weight", .weight = weight, .gradient = gradient}}, {});
    optimizer.step(stream, 0.01, gradient_norm(optimizer, stream));
    return weight.bytes();
  });
}

}  // namespace slackline::testing
