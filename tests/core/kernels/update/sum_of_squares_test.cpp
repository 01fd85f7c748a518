#include "core/kernels/update/sum_of_squares.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

std::size_t workspace_of(std::int64_t size) {
  const Tensor tensor(nullptr, DType::f32, {size});
  return sums_of_squares_workspace_bytes({&tensor, 1}, test_workers());
}

}  // namespace

TEST_CASE("a sum of squares is exact to 1e-13 at any size") {
  for (const std::int64_t size : {0, 1, 31, 32, 33, 65536, 200001}) {
    Stream stream(test_stream(2, workspace_of(size)));
    GuardedTensor tensor = random_tensor(DType::f32, {size}, {});
    long double expected = 0.0L;
    for (const double value : tensor.values()) {
      expected += static_cast<long double>(value) * value;
    }
    // Double partial sums of 200k positive terms: a random walk of 1e-16 roundings.
    REQUIRE(std::abs(sum_of_squares(stream, tensor) - static_cast<double>(expected)) <=
            1e-13 * static_cast<double>(expected));
    REQUIRE(stream.workspace().high_water() == workspace_of(size));
  }
}

TEST_CASE("sums of squares of many tensors are those of each alone") {
  std::vector<GuardedTensor> tensors;
  std::vector<Tensor> views;
  std::vector<double> alone;
  for (std::int64_t i = 0; i < 70; ++i) {  // more than one launch has room for
    tensors.push_back(random_tensor(DType::f32, {i * 37 % 50 * 1000}, {.seed = 3}));
  }
  for (GuardedTensor& tensor : tensors) {
    views.push_back(tensor);
    Stream stream(test_stream(1, workspace_of(tensor.view().dim(0))));
    alone.push_back(sum_of_squares(stream, tensor));
  }
  Stream stream(test_stream(1, sums_of_squares_workspace_bytes(views, test_workers())));
  REQUIRE(sums_of_squares(stream, views) == alone);
}

TEST_CASE("elements at a limit or beyond are counted, whatever their sign") {
  constexpr float kLimit = 1.5F;
  std::vector<GuardedTensor> tensors;
  std::vector<Tensor> views;
  double expected = 0.0;
  for (const std::int64_t size : {0, 1, 31, 33, 65537}) {
    tensors.push_back(random_tensor(DType::f32, {size}, {.seed = 5}));
    std::vector<double> values = tensors.back().values();
    for (std::size_t i = 0; i < values.size(); i += 3) {
      values[i] = i % 2 == 0 ? kLimit : -kLimit;
    }
    tensors.back().set(values);
    for (const double value : values) {
      expected += std::abs(value) >= kLimit ? 1.0 : 0.0;
    }
  }
  views.reserve(tensors.size());
  for (GuardedTensor& tensor : tensors) {
    views.push_back(tensor);
  }
  Stream stream(test_stream(2, sums_of_squares_workspace_bytes(views, test_workers())));
  CHECK(count_at_least(stream, views, kLimit) == expected);
  CHECK(count_at_least(stream, views, 100.0F) == 0.0);
}

TEST_CASE("squares beyond the range of a float still add up") {
  Stream stream(test_stream(1, workspace_of(100)));
  GuardedTensor tensor(DType::f32, {100});
  tensor.fill(1e30);
  const double value = static_cast<double>(1e30F);
  REQUIRE(sum_of_squares(stream, tensor) == Approx(100.0 * value * value).epsilon(1e-14));
}

TEST_CASE("an infinity or NaN anywhere makes a sum of squares not finite") {
  Stream stream(test_stream(2, workspace_of(70003)));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const std::size_t at : {0U, 70000U, 70002U}) {
      GuardedTensor tensor = random_tensor(DType::f32, {70003}, {});
      tensor.view().data<float>()[at] = bad;
      REQUIRE_FALSE(std::isfinite(sum_of_squares(stream, tensor)));
    }
  }
}

TEST_CASE("a sum of squares has the same bits for any number of threads") {
  require_same_bits_for_any_thread_count(workspace_of(300001), [](StreamView stream) {
    GuardedTensor tensor = random_tensor(DType::f32, {300001}, {});
    const double sum = sum_of_squares(stream, tensor);
    std::vector<std::byte> bytes(sizeof(sum));
    std::memcpy(bytes.data(), &sum, sizeof(sum));
    return bytes;
  });
}

TEST_CASE("part of a tensor that begins anywhere has its own sum of squares") {
  constexpr std::int64_t kSize = 1000;
  Stream stream(test_stream(1, workspace_of(kSize)));
  GuardedTensor tensor(DType::f32, {kSize});
  tensor.fill(2.0);
  for (const std::int64_t begin : {1, 2, 3, 4, 999}) {
    const double count = static_cast<double>(kSize - begin);
    REQUIRE(sum_of_squares(stream, tensor.view().rows(begin, kSize)) == 4.0 * count);
  }
}

TEST_CASE("squares of AdamW's directions are those of the steps that it makes") {
  constexpr AdamwStep kStep{.lr = 1.0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .step = 1};
  for (const std::int64_t size : {0, 1, 31, 33, 70001}) {
    GuardedTensor weight(DType::f32, {size});
    GuardedTensor m(DType::f32, {size});
    GuardedTensor v(DType::f32, {size});
    m.fill(0.0);
    v.fill(0.0);
    Stream stream(test_stream(2, workspace_of(size)));
    for (AdamwStep step = kStep; step.step <= 3; ++step.step) {
      weight.fill(0.0);  // which a step without decay then moves by its direction
      GuardedTensor gradient = random_tensor(
          DType::f32, {size}, {.seed = static_cast<std::uint64_t>(step.step), .deviation = 1e-3});
      const AdamwUpdate update{{.weight = weight, .gradient = gradient, .m = m, .v = v}, step};
      adamw(stream, {&update, 1});
      const Moments moments{.m = m, .v = v};
      const double sum = sums_of_squared_directions(stream, {&moments, 1}, step).front();
      // The update rounds each direction to float a few times.
      REQUIRE(sum == Approx(sum_of_squares(stream, weight)).epsilon(1e-6));
      REQUIRE((size == 0 || sum > 0.0));
    }
  }
}

TEST_CASE("squares of directions of a part of a tensor that begins anywhere are its own") {
  constexpr std::int64_t kSize = 1000;
  constexpr AdamwStep kStep{.beta1 = 0.5, .beta2 = 0.75, .eps = 0.5, .step = 1};
  Stream stream(test_stream(1, workspace_of(kSize)));
  GuardedTensor m(DType::f32, {kSize});
  GuardedTensor v(DType::f32, {kSize});
  m.fill(0.5);     // 1 without its bias
  v.fill(0.0625);  // 0.25, of which 0.5 is the root
  for (const std::int64_t begin : {1, 2, 3, 4, 999}) {
    const Moments moments{.m = m.view().rows(begin, kSize), .v = v.view().rows(begin, kSize)};
    const double sum = sums_of_squared_directions(stream, {&moments, 1}, kStep).front();
    REQUIRE(sum == static_cast<double>(kSize - begin));
  }
}

TEST_CASE("squares of an outer step's changes are those of the steps that it makes") {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (const std::int64_t size : {0, 1, 31, 33, 70001}) {
    GuardedTensor difference = random_tensor(DType::f32, {size}, {.seed = 1, .deviation = 1e-2});
    GuardedTensor momentum = random_tensor(DType::f32, {size}, {.seed = 2, .deviation = 1e-2});
    const OuterMemories memories{.momentum = momentum, .difference = difference};
    Stream stream(test_stream(2, workspace_of(size)));
    for (const bool nesterov : {false, true}) {
      for (const auto& [shrink, clip] : {std::pair{1.0, kNone}, {0.3, kNone}, {1.0, 1e-2}}) {
        const OuterStep step{.lr = 1.0,
                             .momentum = 0.9,
                             .scale = 0.25,
                             .shrink = shrink,
                             .clip = clip,
                             .nesterov = nesterov,
                             .writes = OuterWrites::weight};
        GuardedTensor anchor(DType::f32, {size});
        anchor.fill(0.0);  // which a step then moves by its change
        GuardedTensor weight(DType::f32, {size});
        outer_step(
            stream,
            {.difference = difference, .momentum = momentum, .anchor = anchor, .weight = weight},
            step);
        const double sum = sums_of_squared_changes(stream, {&memories, 1}, step).front();
        // The step rounds each change to float a few times.
        REQUIRE(sum == Approx(sum_of_squares(stream, weight)).epsilon(1e-6));
        REQUIRE((size == 0 || sum > 0.0));
      }
    }
  }
}

TEST_CASE("squares of changes of a part of a tensor that begins anywhere are its own") {
  constexpr std::int64_t kSize = 1000;
  Stream stream(test_stream(1, workspace_of(kSize)));
  GuardedTensor momentum(DType::f32, {kSize});
  GuardedTensor difference(DType::f32, {kSize});
  momentum.fill(1.0);
  difference.fill(3.0);
  for (const std::int64_t begin : {1, 2, 3, 4, 999}) {
    const OuterMemories memories{.momentum = momentum.view().rows(begin, kSize),
                                 .difference = difference.view().rows(begin, kSize)};
    const double sum =
        sums_of_squared_changes(
            stream, {&memories, 1}, {.momentum = 0.5, .scale = 0.5, .nesterov = true})
            .front();
    REQUIRE(sum == 6.25 * static_cast<double>(kSize - begin));  // of 1.5 + 0.5 x 2
  }
}

TEST_CASE("a sum of squares takes f32 alone") {
  Stream stream(test_stream(1));
  GuardedTensor tensor(DType::bf16, {3});
  REQUIRE_THROWS_WITH(sum_of_squares(stream, tensor), Catch::Contains("is bf16 (3), due is f32"));
}

}  // namespace slackline::testing
