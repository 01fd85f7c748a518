#include "core/kernels/elementwise/accumulate.h"

#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

TEST_CASE("a tensor is added or taken off in f32, rounded once") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t size : {0, 1, 17, 100001}) {
      GuardedTensor from = random_tensor(dtype, {size}, {.seed = 1});
      GuardedTensor more = random_tensor(DType::f32, {size}, {.seed = 2});
      GuardedTensor less = more;
      std::vector<double> sums = more.values();
      std::vector<double> differences = sums;
      const std::vector<double> addends = from.values();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<float>(sums[i] + addends[i]);
        differences[i] = static_cast<float>(differences[i] - addends[i]);
      }
      accumulate(stream, from, more);
      subtract(stream, from, less);
      REQUIRE(more.values() == sums);
      REQUIRE(less.values() == differences);
      REQUIRE(more.sentinels_intact());
      REQUIRE(less.sentinels_intact());
    }
  }
}

TEST_CASE("what bf16 leaves out and what it keeps make up the value") {
  Stream stream(test_stream(2));
  for (const std::int64_t size : {0, 1, 17, 100001}) {
    GuardedTensor values = random_tensor(DType::f32, {size}, {});
    const std::vector<double> whole = values.values();
    const std::vector<double> kept = GuardedTensor(DType::bf16, {size}, whole).values();
    keep_bf16_error(stream, values);
    const std::vector<double> error = values.values();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      REQUIRE(error[i] + kept[i] == whole[i]);
    }
    REQUIRE(values.sentinels_intact());
  }
}

TEST_CASE("accumulate takes f32 sums of the same shape") {
  Stream stream(test_stream(1));
  GuardedTensor four(DType::f32, {4});
  GuardedTensor five(DType::f32, {5});
  GuardedTensor narrow(DType::bf16, {4});
  REQUIRE_THROWS_WITH(accumulate(stream, four, five), Catch::Contains("due is f32 (4)"));
  REQUIRE_THROWS_WITH(subtract(stream, four, narrow), Catch::Contains("subtract to is bf16 (4)"));
  REQUIRE_THROWS_WITH(keep_bf16_error(stream, narrow), Catch::Contains("due is f32"));
}

}  // namespace slackline::testing
