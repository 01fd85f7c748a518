#include "core/kernels/simd.h"

#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

// Every upper half word with lower halves around the ties: all exponents, signs, NaN and infinity.
std::vector<float> rounding_cases() {
  std::vector<float> cases;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0U, 0x1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      cases.push_back(std::bit_cast<float>(upper << 16U | lower));
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("vectors narrow to bf16 exactly like the scalar constructor") {
  const std::vector<float> cases = rounding_cases();
  std::vector<BFloat16> narrowed(cases.size());
  simd::for_each_vector(cases.size(), [&](std::size_t i, auto part) {
    simd::store(simd::load(cases.data() + i, part), narrowed.data() + i, part);
  });
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    wrong += narrowed[i] == BFloat16(cases[i]) ? 0U : 1U;
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("vectors widen bf16 exactly") {
  std::vector<BFloat16> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i].bits = static_cast<std::uint16_t>(i);
  }
  std::vector<float> widened(halves.size());
  simd::for_each_vector(halves.size(), [&](std::size_t i, auto part) {
    simd::store(simd::load(halves.data() + i, part), widened.data() + i, part);
  });
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    wrong += std::bit_cast<std::uint32_t>(widened[i]) == i << 16U ? 0U : 1U;
  }
  REQUIRE(wrong == 0);
}

TEMPLATE_TEST_CASE("tails read zeros beyond their elements and write nothing there",
                   "",
                   float,
                   BFloat16) {
  for (std::size_t count = 1; count < simd::kLanes; ++count) {
    const std::vector<TestType> ones(count, TestType(1.0F));  // exact size: asan sees an overread
    REQUIRE(simd::sum_lanes(simd::load(ones.data(), simd::First{count})) ==
            static_cast<float>(count));
    std::vector<TestType> out(simd::kLanes, TestType(7.0F));
    simd::store(simd::splat(2.0F), out.data(), simd::First{count});
    for (std::size_t i = 0; i < out.size(); ++i) {
      REQUIRE(static_cast<float>(out[i]) == (i < count ? 2.0F : 7.0F));
    }
  }
}

TEST_CASE("a walk in vectors covers every element once") {
  for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 100U}) {
    std::vector<int> seen(count, 0);
    simd::for_each_vector(count, [&](std::size_t i, auto part) {
      std::size_t width = simd::kLanes;
      if constexpr (std::is_same_v<decltype(part), simd::First>) {
        width = part.count;
      }
      for (std::size_t k = i; k < i + width; ++k) {
        ++seen.at(k);
      }
    });
    REQUIRE(seen == std::vector<int>(count, 1));
  }
}

TEST_CASE("lanes are reduced whole") {
  std::array<float, simd::kLanes> values{};
  std::iota(values.begin(), values.end(), 1.0F);
  const auto n = static_cast<float>(simd::kLanes);
  REQUIRE(simd::sum_lanes(simd::load(values.data())) == n * (n + 1.0F) / 2.0F);
  REQUIRE(simd::max_lanes(simd::load(values.data())) == n);
}

}  // namespace slackline
