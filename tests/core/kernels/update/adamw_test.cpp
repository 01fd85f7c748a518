#include "core/kernels/update/adamw.h"

#include "tests/reference/adamw_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/closeness.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr AdamwStep kStep{.lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0.1,
                          .gradient_scale = 0.7};

struct Case {
  explicit Case(std::int64_t size)
      : weight(random_tensor(DType::f32, {size}, {.seed = 1})),
        gradient(random_tensor(DType::f32, {size}, {.seed = 2, .deviation = 1e-3})),
        m(DType::f32, {size}),
        v(DType::f32, {size}),
        copy(DType::bf16, {size}) {
    m.fill(0.0);
    v.fill(0.0);
  }

  [[nodiscard]] AdamwTensors tensors() {
    return {.weight = weight, .gradient = gradient, .m = m, .v = v, .weight_copy = copy};
  }

  [[nodiscard]] bool sentinels_intact() const {
    return weight.sentinels_intact() && m.sentinels_intact() && v.sentinels_intact() &&
           copy.sentinels_intact();
  }

  GuardedTensor weight, gradient, m, v, copy;
};

void adamw(StreamView stream, const AdamwTensors& tensors, const AdamwStep& step) {
  const AdamwUpdate update{tensors, step};
  slackline::adamw(stream, {&update, 1});
}

}  // namespace

TEST_CASE("AdamW follows the oracle over several steps") {
  Stream stream(test_stream(2));
  for (const std::int64_t size : {0, 1, 17, 70001}) {
    Case test(size);
    reference::AdamwState expected{test.weight.values(), test.m.values(), test.v.values()};
    for (AdamwStep step = kStep; step.step <= 5; ++step.step) {
      const auto seed = static_cast<std::uint64_t>(10 + step.step);
      test.gradient.set(
          random_values(static_cast<std::size_t>(size), {.seed = seed, .deviation = 1e-3}));
      expected.update(test.gradient.values(), step);
      adamw(stream, test.tensors(), step);
    }
    // Five steps of a few roundings of 6e-8 each; in m terms of either sign cancel.
    REQUIRE(worst_mismatch(test.weight.values(), expected.weight, {2e-6, 1e-7}) == "");
    REQUIRE(worst_mismatch(test.m.values(), expected.m, {1e-6, 1e-9}) == "");
    REQUIRE(worst_mismatch(test.v.values(), expected.v, {2e-6, 0.0}) == "");
    REQUIRE(test.copy.bytes() == GuardedTensor(DType::bf16, {size}, test.weight.values()).bytes());
    REQUIRE(test.sentinels_intact());
  }
}

TEST_CASE("decay too small for a float next to 1 still acts") {
  Stream stream(test_stream(1));
  Case test(1);
  test.weight.set(std::vector<double>{1.0});
  test.gradient.fill(0.0);
  AdamwStep step = kStep;
  step.lr = 1e-6;
  step.weight_decay = 0.5;
  adamw(stream, test.tensors(), step);
  // 5e-7 of 1, of which a float below 1 resolves steps of 6e-8.
  REQUIRE(test.weight.values()[0] == Approx(1.0 - 5e-7).margin(3e-8));
}

TEST_CASE("AdamW without a copy updates the same weights") {
  Stream stream(test_stream(1));
  Case with(1000);
  Case without(1000);
  adamw(stream, with.tensors(), kStep);
  AdamwTensors tensors = without.tensors();
  tensors.weight_copy = {};
  adamw(stream, tensors, kStep);
  REQUIRE(with.weight.bytes() == without.weight.bytes());
}

TEST_CASE("learning rate 0 leaves the weights and moves the moments") {
  Stream stream(test_stream(1));
  Case test(100);
  const std::vector<std::byte> before = test.weight.bytes();
  AdamwStep step = kStep;
  step.lr = 0.0;
  adamw(stream, test.tensors(), step);
  REQUIRE(test.weight.bytes() == before);
  REQUIRE(test.m.values()[0] != 0.0);
}

TEST_CASE("a tensor cut anywhere is updated to the same bits") {
  Stream stream(test_stream(1));
  Case whole(1001);
  Case cut(1001);
  adamw(stream, whole.tensors(), kStep);
  const AdamwTensors all = cut.tensors();
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 500}, {500, 1001}}) {
    adamw(stream,
          {.weight = all.weight.rows(begin, end),
           .gradient = all.gradient.rows(begin, end),
           .m = all.m.rows(begin, end),
           .v = all.v.rows(begin, end),
           .weight_copy = all.weight_copy.rows(begin, end)},
          kStep);
  }
  REQUIRE(cut.weight.bytes() == whole.weight.bytes());
  REQUIRE(cut.m.bytes() == whole.m.bytes());
  REQUIRE(cut.v.bytes() == whole.v.bytes());
  REQUIRE(cut.copy.bytes() == whole.copy.bytes());
}

TEST_CASE("AdamW gives the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(0, [](StreamView stream) {
    Case test(200001);
    adamw(stream, test.tensors(), kStep);
    return test.weight.bytes();
  });
}

TEST_CASE("AdamW refuses moments of another shape and step 0") {
  Stream stream(test_stream(1));
  Case test(4);
  GuardedTensor shorter(DType::f32, {3});
  AdamwTensors tensors = test.tensors();
  tensors.m = shorter;
  REQUIRE_THROWS_WITH(adamw(stream, tensors, kStep), Catch::Contains("adamw m is f32 (3)"));
  AdamwStep step = kStep;
  step.step = 0;
  REQUIRE_THROWS_WITH(adamw(stream, test.tensors(), step), Catch::Contains("step 0"));
}

}  // namespace slackline::testing
