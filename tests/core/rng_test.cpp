#include "core/rng.h"

#include <cmath>
#include <vector>

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("philox gives the published known answers") {
  // kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
  REQUIRE(philox({0, 0}, {0, 0, 0, 0}) ==
          PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(philox({0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}) ==
          PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
          PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal numbers have mean 0, variance 1 and kurtosis 3") {
  const PhiloxKey key = philox_key(1234, "wte.weight");
  constexpr int kCount = 200000;
  double sum = 0.0;
  double squares = 0.0;
  double fourths = 0.0;
  for (std::uint64_t pair = 0; pair < kCount / 2; ++pair) {
    for (const double x : normal_pair(key, pair)) {
      sum += x;
      squares += x * x;
      fourths += x * x * x * x;
    }
  }
  // Five standard errors of each moment over 200k samples.
  REQUIRE(std::abs(sum / kCount) < 5.0 / std::sqrt(kCount));
  REQUIRE(std::abs(squares / kCount - 1.0) < 5.0 * std::sqrt(2.0 / kCount));
  REQUIRE(std::abs(fourths / kCount - 3.0) < 5.0 * std::sqrt(96.0 / kCount));
}

TEST_CASE("a run of normal numbers may begin and end within a pair") {
  const PhiloxKey key = philox_key(7, "h.0.attn.c_attn.weight");
  for (const std::size_t first : {0, 1, 6}) {
    for (const std::size_t count : {0, 1, 2, 5}) {
      std::vector<float> values(count);
      draw_normal(values, key, first, 0.02);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t element = first + i;
        CHECK(values[i] == static_cast<float>(0.02 * normal_pair(key, element / 2)[element % 2]));
      }
    }
  }
}

TEST_CASE("dropout drops the asked share, and every part of the key matters") {
  DropoutKey key{.probability = 0.1F, .site = philox_key(1, "dropout/h.0.attn"), .step = 3};
  const std::uint32_t threshold = dropout_threshold(0.1F);
  int dropped = 0;
  constexpr int kBlocks = 50000;
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    for (const std::uint32_t word : dropout_words(key, 7, block)) {
      dropped += word < threshold ? 1 : 0;
    }
  }
  REQUIRE(dropped / (4.0 * kBlocks) == Approx(0.1).margin(5.0 * std::sqrt(0.09 / (4.0 * kBlocks))));

  const PhiloxBlock words = dropout_words(key, 7, 0);
  DropoutKey other = key;
  other.step = 4;
  REQUIRE(dropout_words(other, 7, 0) != words);
  other.step = 3 + (std::uint64_t{1} << 32U);
  REQUIRE(dropout_words(other, 7, 0) != words);
  other = key;
  other.site = philox_key(1, "dropout/h.1.attn");
  REQUIRE(dropout_words(other, 7, 0) != words);
  REQUIRE(dropout_words(key, 8, 0) != words);
  REQUIRE(dropout_words(key, 7 + (std::uint64_t{1} << 32U), 0) != words);
}

}  // namespace slackline
