#include "core/kernels/elementwise/gelu.h"

#include "tests/reference/gelu_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/finite_differences.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

// f32: gelu_math.h's own error. bf16: half a unit of its 8 bits, relative, for the one rounding.
Tolerance tolerance(DType dtype) {
  return dtype == DType::f32 ? Tolerance{.relative = 1e-6, .absolute = 1e-6}
                             : Tolerance{.relative = 0x1p-8, .absolute = 1e-6};
}

}  // namespace

TEST_CASE("GELU and its gradient match the oracle at any size") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t size : {0, 1, 15, 17, 16384, 50001}) {
      INFO(name_of(dtype) << " " << size);
      GuardedTensor x = random_tensor(dtype, {size}, {.seed = 1, .deviation = 3.0});
      GuardedTensor dy = random_tensor(dtype, {size}, {.seed = 2});
      GuardedTensor y(dtype, {size});
      GuardedTensor dx(dtype, {size});
      gelu_forward(stream, x, y);
      gelu_backward(stream, {.x = x, .dy = dy, .dx = dx});
      std::vector<double> expected_y;
      std::vector<double> expected_dx;
      const std::vector<double> inputs = x.values();
      const std::vector<double> slopes = dy.values();
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        expected_y.push_back(reference::gelu(inputs[i]));
        expected_dx.push_back(slopes[i] * reference::gelu_derivative(inputs[i]));
      }
      REQUIRE(worst_mismatch(y.values(), expected_y, tolerance(dtype)) == "");
      REQUIRE(worst_mismatch(dx.values(), expected_dx, tolerance(dtype)) == "");
      REQUIRE(y.sentinels_intact());
      REQUIRE(dx.sentinels_intact());
    }
  }
}

TEST_CASE("the GELU oracle's derivative agrees with finite differences") {
  for (double x = -6.0; x < 6.0; x += 0.37) {
    const auto f = [](const std::vector<double>& at) { return reference::gelu(at[0]); };
    REQUIRE(worst_mismatch(finite_differences(f, {x}),
                           std::vector<double>{reference::gelu_derivative(x)},
                           {.absolute = 1e-8}) == "");
  }
}

TEST_CASE("GELU works in place") {
  Stream stream(test_stream(1));
  GuardedTensor x = random_tensor(DType::f32, {100}, {});
  GuardedTensor y(DType::f32, {100});
  gelu_forward(stream, x, y);
  gelu_forward(stream, x, x);
  REQUIRE(x.bytes() == y.bytes());
}

TEST_CASE("GELU gives the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    GuardedTensor x = random_tensor(DType::f32, {70001}, {});
    gelu_forward(stream, x, x);
    return x.bytes();
  });
}

TEST_CASE("GELU refuses a result of another shape or type") {
  Stream stream(test_stream(1));
  GuardedTensor x(DType::f32, {4});
  GuardedTensor shorter(DType::f32, {3});
  GuardedTensor narrower(DType::bf16, {4});
  REQUIRE_THROWS_WITH(gelu_forward(stream, x, shorter),
                      Catch::Contains("gelu_forward y is f32 (3), due is f32 (4)"));
  REQUIRE_THROWS_WITH(gelu_forward(stream, x, narrower), Catch::Contains("due is f32 (4)"));
  REQUIRE_THROWS_WITH(gelu_backward(stream, {.x = x, .dy = x}), Catch::Contains("dx is missing"));
}

}  // namespace slackline::testing
