#include "compress/kernels/sparse/sparse.h"

#include <cmath>
#include <limits>
#include <set>

#include "tests/core/kernels/index_tensor.h"
#include "tests/support/catch.h"
#include "tests/support/guarded_tensor.h"
#include "tests/support/thread_counts.h"

namespace slackline::testing {

namespace {

constexpr std::int64_t kCount = 50000;

// Every third element and the last one, in descending order: no op asks for ascending ones.
std::vector<std::uint32_t> some_indices() {
  std::vector<std::uint32_t> indices = {kCount - 1};
  indices.reserve(kCount);
  for (std::int64_t i = kCount - 5; i >= 0; i -= 3) {
    indices.push_back(static_cast<std::uint32_t>(i));
  }
  return indices;
}

Shape row_of(const std::vector<std::uint32_t>& indices) {
  return {static_cast<std::int64_t>(indices.size())};
}

double rounded(double value, DType dtype) {
  return dtype == DType::f32 ? value : static_cast<float>(BFloat16(static_cast<float>(value)));
}

}  // namespace

TEST_CASE("gather_at reads single elements and rounds them to what is due") {
  Stream stream(test_stream(2));
  const std::vector<std::uint32_t> indices = some_indices();
  const IndexTensor at(indices);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    GuardedTensor values = random_tensor(DType::f32, {kCount / 10, 10}, {});
    GuardedTensor kept(dtype, row_of(indices));
    gather_at(stream, values, at.view, kept);
    const std::vector<double> dense = values.values();
    std::vector<double> expected;
    expected.reserve(indices.size());
    for (const std::uint32_t index : indices) {
      expected.push_back(rounded(dense[index], dtype));
    }
    REQUIRE(kept.values() == expected);
    REQUIRE(kept.sentinels_intact());
  }
}

TEST_CASE("scatter_at writes or adds single elements and leaves the others") {
  Stream stream(test_stream(2));
  const std::vector<std::uint32_t> indices = some_indices();
  const IndexTensor at(indices);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ScatterMode mode : {ScatterMode::write, ScatterMode::add}) {
      for (const float scale : {1.0F, 4.0F}) {
        GuardedTensor kept = random_tensor(dtype, row_of(indices), {.seed = 2});
        GuardedTensor out(DType::f32, {kCount});
        out.fill(8.0);
        scatter_at(stream,
                   {.kept = kept, .indices = at.view, .out = out, .scale = scale, .mode = mode});
        const double before = mode == ScatterMode::add ? 8.0 : 0.0;
        const std::vector<double> addends = kept.values();
        std::vector<double> expected(kCount, 8.0);
        for (std::size_t i = 0; i < indices.size(); ++i) {
          expected[indices[i]] = static_cast<float>(before + scale * addends[i]);
        }
        REQUIRE(out.values() == expected);
        REQUIRE(out.sentinels_intact());
      }
    }
  }
}

TEST_CASE("subtract_at leaves what rounding took, and nothing of what is not finite") {
  Stream stream(test_stream(2));
  const std::vector<std::uint32_t> indices = some_indices();
  const IndexTensor at(indices);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    GuardedTensor residual = random_tensor(DType::f32, {kCount}, {});
    residual.view().data<float>()[indices[0]] = std::numeric_limits<float>::infinity();
    residual.view().data<float>()[indices[1]] = std::nanf("");
    residual.view().data<float>()[indices[2]] = std::numeric_limits<float>::max();
    GuardedTensor kept(dtype, row_of(indices));
    gather_at(stream, residual, at.view, kept);
    std::vector<double> expected = residual.values();
    for (const std::uint32_t index : indices) {
      const double sent = rounded(expected[index], dtype);
      expected[index] = std::isfinite(sent) ? expected[index] - sent : 0.0;
    }
    subtract_at(stream, kept, at.view, residual);
    REQUIRE(residual.values() == expected);
    REQUIRE(residual.sentinels_intact());
  }
}

TEST_CASE("tell_non_finite marks a message that leaves an Inf or NaN out") {
  Stream stream(test_stream(2));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::nanf("")}) {
      for (const std::int64_t place : {std::int64_t{0}, kCount / 2, kCount - 1}) {
        for (const NonFinite found : {NonFinite::keep, NonFinite::clear}) {
          INFO(place);
          GuardedTensor values = random_tensor(DType::f32, {kCount}, {});
          GuardedTensor kept = random_tensor(dtype, {5}, {.seed = 2});
          std::vector<double> expected_kept = kept.values();
          std::vector<double> expected = values.values();
          tell_non_finite(stream, values, found, kept);
          REQUIRE(values.values() == expected);
          REQUIRE(kept.values() == expected_kept);

          values.view().data<float>()[place] = bad;
          tell_non_finite(stream, values, found, kept);
          REQUIRE(std::isnan(kept.values()[0]));
          expected_kept[0] = 0.0;
          std::vector<double> others = kept.values();
          others[0] = 0.0;
          REQUIRE(others == expected_kept);
          const auto at = static_cast<std::size_t>(place);
          REQUIRE(std::isfinite(values.values()[at]) == (found == NonFinite::clear));
          std::vector<double> rest = values.values();
          rest[at] = 0.0;
          expected[at] = 0.0;
          REQUIRE(rest == expected);
          REQUIRE(values.sentinels_intact());
          REQUIRE(kept.sentinels_intact());
        }
      }
    }
  }
}

TEST_CASE("keep_only zeroes every other element") {
  const std::vector<std::uint32_t> indices = some_indices();
  const IndexTensor at(indices);
  Stream stream(test_stream(2, keep_only_workspace_bytes(indices.size())));
  GuardedTensor tensor = random_tensor(DType::f32, {kCount / 10, 10}, {});
  const std::vector<double> before = tensor.values();
  std::vector<double> expected(kCount, 0.0);
  for (const std::uint32_t index : indices) {
    expected[index] = before[index];
  }
  keep_only(stream, at.view, tensor);
  REQUIRE(tensor.values() == expected);
  REQUIRE(tensor.sentinels_intact());
}

TEST_CASE("ops on single elements refuse what does not fit") {
  Stream stream(test_stream(1));
  GuardedTensor dense(DType::f32, {4});
  GuardedTensor kept(DType::f32, {3});
  const IndexTensor at({0, 2});
  REQUIRE_THROWS_WITH(gather_at(stream, dense, at.view, kept),
                      Catch::Contains("sparse kept is f32 (3), due is f32 (2)"));
}

}  // namespace slackline::testing
