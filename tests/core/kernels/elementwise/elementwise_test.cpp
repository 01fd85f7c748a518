#include "core/kernels/elementwise/elementwise.h"

#include "tests/support/catch.h"
#include "tests/support/closeness.h"
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

TEST_CASE("a sum is rounded once, and may stand where an operand was") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t size : kSizes) {
      GuardedTensor a = random_tensor(dtype, {size}, {.seed = 1});
      GuardedTensor b = random_tensor(dtype, {size}, {.seed = 2});
      GuardedTensor out(dtype, {size});
      std::vector<double> expected = a.values();
      const std::vector<double> addends = b.values();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += addends[i];
      }
      add(stream, a, b, out);
      // bf16 sums are exact in float or round there first, half a unit of float more.
      REQUIRE(worst_mismatch(out.values(),
                             expected,
                             {.relative = dtype == DType::f32 ? 0x1p-24 : 0x1.0001p-8}) == "");
      GuardedTensor in_place = a;
      add(stream, in_place, b, in_place);
      REQUIRE(out.sentinels_intact());
      REQUIRE(in_place.bytes() == out.bytes());
      add(stream, a, b, b);
      REQUIRE(b.bytes() == out.bytes());
    }
  }
}

TEST_CASE("element-wise ops refuse what does not fit") {
  Stream stream(test_stream(1));
  GuardedTensor a(DType::f32, {4});
  GuardedTensor b(DType::f32, {5});
  GuardedTensor integers(DType::i32, {4});
  REQUIRE_THROWS_WITH(cast(stream, a, b), Catch::Contains("cast to is f32 (5), due is f32 (4)"));
  REQUIRE_THROWS_WITH(add(stream, a, b, a), Catch::Contains("add b is f32 (5)"));
  REQUIRE_THROWS_WITH(add(stream, integers, integers, integers),
                      Catch::Contains("does not take i32"));
}

}  // namespace slackline::testing
