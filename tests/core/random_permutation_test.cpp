#include "core/random_permutation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace slackline::testing {

namespace {

// Chi-square of counts against equal shares, as deviations from its mean: below 5 for fair counts
// but for one seed in a million (a little more often where there are few bins).
double deviations(const std::vector<double>& counts, double bins) {
  double total = 0.0;
  for (const double count : counts) {
    total += count;
  }
  const double share = total / bins;
  double chi_square = (bins - static_cast<double>(counts.size())) * share;  // of empty bins
  for (const double count : counts) {
    chi_square += (count - share) * (count - share) / share;
  }
  return (chi_square - (bins - 1.0)) / std::sqrt(2.0 * (bins - 1.0));
}

double binomial(std::size_t n, std::size_t k) {
  double result = 1.0;
  for (std::size_t i = 0; i < k; ++i) {
    result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  }
  return std::round(result);
}

PhiloxKey key_of(int seed) {
  return philox_key(static_cast<std::uint64_t>(seed), "test");
}

}  // namespace

TEST_CASE("a permutation has no repeats and leaves nothing out, for any n") {
  for (const std::uint32_t n : {1,  2,   3,   4,   5,    7,    8,    9,    15,    16,   17,
                                25, 101, 255, 256, 1009, 1024, 4095, 4097, 65537, 99999}) {
    for (int seed = 0; seed < 3; ++seed) {
      const RandomPermutation permutation(key_of(seed), n);
      std::vector<bool> seen(n, false);
      bool is_permutation = true;
      for (std::uint32_t x = 0; x < n; ++x) {
        const std::uint32_t image = permutation(x);
        is_permutation = is_permutation && image < n && !seen[image];
        seen[std::min(image, n - 1)] = true;
      }
      INFO(n);
      REQUIRE(is_permutation);
    }
  }
}

TEST_CASE("images of the largest permutation stay in range and do not repeat") {
  constexpr std::uint32_t kLargest = 0xffffffff;
  const RandomPermutation permutation(key_of(1), kLargest);
  std::vector<std::uint32_t> images;
  constexpr std::uint32_t kImages = 100000;
  images.reserve(kImages);
  for (std::uint32_t x = 0; x < kImages; ++x) {
    images.push_back(permutation(kLargest - 1 - x));
  }
  std::sort(images.begin(), images.end());
  REQUIRE(images.back() < kLargest);
  REQUIRE(std::adjacent_find(images.begin(), images.end()) == images.end());
}

TEST_CASE("a permutation is a function of key and n") {
  const RandomPermutation one(key_of(1), 1000);
  const RandomPermutation same(key_of(1), 1000);
  const RandomPermutation other(key_of(2), 1000);
  int num_equal = 0;
  for (std::uint32_t x = 0; x < 1000; ++x) {
    REQUIRE(one(x) == same(x));
    num_equal += one(x) == other(x) ? 1 : 0;
  }
  REQUIRE(num_equal < 10);  // 1 expected
}

TEST_CASE("over many keys every set of k comes equally often") {
  constexpr int kKeys = 20000;
  for (std::size_t n = 2; n <= 8; ++n) {
    for (std::size_t k = 1; k < n; ++k) {
      std::map<std::uint32_t, double> counts;
      for (int seed = 0; seed < kKeys; ++seed) {
        const RandomPermutation permutation(key_of(seed), n);
        std::uint32_t set = 0;
        for (std::uint32_t x = 0; x < k; ++x) {
          set |= 1U << permutation(x);
        }
        ++counts[set];
      }
      std::vector<double> values;
      values.reserve(counts.size());
      for (const auto& [set, count] : counts) {
        values.push_back(count);
      }
      INFO(k << " of " << n);
      REQUIRE(deviations(values, binomial(n, k)) < 5.0);
    }
  }
}

TEST_CASE("a sample meets every element equally often, and every pair of places") {
  constexpr std::size_t kCount = 500;
  constexpr std::uint32_t kKept = 25;
  constexpr std::size_t kBlock = 25;  // pairs are counted by blocks of elements
  constexpr std::size_t kBlocks = kCount / kBlock;
  std::vector<double> met(kCount, 0.0);
  std::vector<double> pairs(kBlocks * kBlocks, 0.0);
  for (int seed = 0; seed < 20000; ++seed) {
    const RandomPermutation permutation(key_of(seed), kCount);
    std::uint32_t before = permutation(0);
    ++met[before];
    for (std::uint32_t x = 1; x < kKept; ++x) {
      const std::uint32_t image = permutation(x);
      ++met[image];
      pairs[before / kBlock * kBlocks + image / kBlock] += 1.0;
      before = image;
    }
  }
  REQUIRE(deviations(met, kCount) < 5.0);
  // Two places of one block: 24 of 25 may be the second, an expectation 4 % lower in 20 of 400
  // bins. Weighted up, they are as likely as the others.
  for (std::size_t block = 0; block < kBlocks; ++block) {
    pairs[block * kBlocks + block] *= static_cast<double>(kBlock) / (kBlock - 1);
  }
  REQUIRE(deviations(pairs, kBlocks * kBlocks) < 5.0);
}

TEST_CASE("a permutation refuses what it cannot number") {
  REQUIRE_THROWS_WITH(RandomPermutation(key_of(1), 0), Catch::Contains("a permutation of 0"));
  REQUIRE_THROWS_WITH(RandomPermutation(key_of(1), std::uint64_t{1} << 32U),
                      Catch::Contains("a permutation of 4294967296"));
}

}  // namespace slackline::testing
