#include "core/kernels/elementwise/elementwise.h"

#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::int64_t kSizes[] = {0, 1, 17, 300000};

}  // namespace

TEST_CASE("casts round to nearest even one way and are exact the other") {
  Stream stream(test_stream(2));
  for (const std::int64_t size : kSizes) {
    GuardedTensor wide = random_tensor(DType::f32, {size}, {});
    GuardedTensor narrow(DType::bf16, {size});
    GuardedTensor back(DType::f32, {size});
    cast(stream, wide, narrow);
    cast(stream, narrow, back);
    // The test support rounds by BFloat16's own constructor.
    REQUIRE(narrow.bytes() == GuardedTensor(DType::bf16, {size}, wide.values()).bytes());
    REQUIRE(back.values() == narrow.values());
    REQUIRE(narrow.sentinels_intact());
    REQUIRE(back.sentinels_intact());
  }
}

TEST_CASE("a cast between equal types copies, integers included") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    for (const std::int64_t size : kSizes) {
      GuardedTensor from = random_tensor(dtype, {size}, {.deviation = 100.0});
      GuardedTensor to(dtype, {size});
      cast(stream, from, to);
      REQUIRE(to.bytes() == from.bytes());
      REQUIRE(to.sentinels_intact());
    }
  }
}

TEST_CASE("fill_zero clears every byte and no other") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    for (const std::int64_t size : kSizes) {
      GuardedTensor tensor(dtype, {size});
      fill_zero(stream, tensor);
      REQUIRE(tensor.bytes() == std::vector<std::byte>(tensor.bytes().size()));
      REQUIRE(tensor.sentinels_intact());
    }
  }
}

TEST_CASE("a tensor is added or taken off in f32, rounded once") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t size : kSizes) {
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
  for (const std::int64_t size : kSizes) {
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

TEST_CASE("element-wise ops refuse what does not fit") {
  Stream stream(test_stream(1));
  GuardedTensor a(DType::f32, {4});
  GuardedTensor b(DType::f32, {5});
  GuardedTensor integers(DType::i32, {4});
  GuardedTensor narrow(DType::bf16, {4});
  REQUIRE_THROWS_WITH(cast(stream, a, b), Catch::Contains("cast to is f32 (5), due is f32 (4)"));
  REQUIRE_THROWS_WITH(accumulate(stream, a, b), Catch::Contains("due is f32 (4)"));
  REQUIRE_THROWS_WITH(accumulate(stream, integers, a), Catch::Contains("does not take i32"));
  REQUIRE_THROWS_WITH(subtract(stream, a, narrow), Catch::Contains("subtract to is bf16 (4)"));
  REQUIRE_THROWS_WITH(keep_bf16_error(stream, narrow), Catch::Contains("due is f32"));
}

}  // namespace slackline::testing
