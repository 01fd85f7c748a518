#include "core/kernels/elementwise/bias_gradient.h"

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

struct Size {
  std::int64_t N;
  std::int64_t C;
};

}  // namespace

TEST_CASE("a bias gradient adds the column sums to what is there") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Size size : {Size{0, 5}, Size{1, 1}, Size{3, 17}, Size{33, 48}, Size{1500, 1030}}) {
      INFO(name_of(dtype) << " " << size.N << " x " << size.C);
      Stream stream(test_stream(2, bias_gradient_workspace_bytes(size.N, size.C, test_workers())));
      GuardedTensor dy = random_tensor(dtype, {size.N, size.C}, {.seed = 1});
      GuardedTensor d_bias = random_tensor(DType::f32, {size.C}, {.seed = 2});
      std::vector<double> expected = d_bias.values();
      const std::vector<double> rows = dy.values();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        expected[i % expected.size()] += rows[i];
      }
      bias_gradient(stream, dy, d_bias);
      // Sums in f32 of at most 1500 numbers of order 1: N roundings of 6e-8 of a partial sum of
      // order sqrt(N), adding up like a random walk: 1500 * 6e-8.
      REQUIRE(worst_mismatch(d_bias.values(), expected, {.relative = 1e-6, .absolute = 1e-4}) ==
              "");
      REQUIRE(d_bias.sentinels_intact());
      REQUIRE(stream.workspace().high_water() ==
              bias_gradient_workspace_bytes(size.N, size.C, test_workers()));
    }
  }
}

TEST_CASE("sums of small integers in a bias gradient are exact") {
  Stream stream(test_stream(2, bias_gradient_workspace_bytes(1000, 3, test_workers())));
  GuardedTensor dy(DType::bf16, {1000, 3});
  dy.fill(3.0);
  GuardedTensor d_bias(DType::f32, {3});
  d_bias.fill(1.0);
  bias_gradient(stream, dy, d_bias);
  REQUIRE(d_bias.values() == std::vector<double>(3, 3001.0));
}

TEST_CASE("a bias gradient has the same bits for any number of threads") {
  const std::size_t workspace = bias_gradient_workspace_bytes(777, 1100, test_workers());
  require_same_bits_for_any_thread_count(workspace, [](StreamView stream) {
    GuardedTensor dy = random_tensor(DType::f32, {777, 1100}, {});
    GuardedTensor d_bias = random_tensor(DType::f32, {1100}, {});
    bias_gradient(stream, dy, d_bias);
    return d_bias.bytes();
  });
}

TEST_CASE("a bias gradient refuses a bias of another width") {
  Stream stream(test_stream(1));
  GuardedTensor dy(DType::f32, {2, 4});
  GuardedTensor d_bias(DType::f32, {3});
  REQUIRE_THROWS_WITH(bias_gradient(stream, dy, d_bias), Catch::Contains("due is f32 (4)"));
}

}  // namespace slackline::testing
