#include "core/kernels/philox_simd.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline {

namespace {

// Samples, steps and elements on both sides of 2^32: all parts of the counter and the key count.
constexpr std::uint64_t kBeyond = (std::uint64_t{1} << 32U) + 5;

std::vector<DropoutKey> keys() {
  const PhiloxKey site = philox_key(1234, "dropout/h.3.attn");
  return {{.probability = 0.1F, .site = site, .step = 1},
          {.probability = 0.5F, .site = site, .step = kBeyond}};
}

}  // namespace

TEMPLATE_TEST_CASE("vector Philox gives the words of dropout_words, whole and in halves",
                   "",
                   simd::DropoutWords<1>,
                   simd::DropoutWords<2>,
                   simd::DropoutWords<4>) {
  for (const DropoutKey& key : keys()) {
    for (const std::uint64_t sample : {std::uint64_t{0}, std::uint64_t{7}, kBeyond}) {
      for (const std::uint64_t block : {std::uint64_t{0}, kBeyond, kBeyond - 7}) {
        std::vector<std::uint32_t> words(TestType::kWords);
        std::vector<std::uint16_t> halves(2 * words.size());
        const TestType drawn(key, sample);
        drawn.draw(block, words.data());
        drawn.draw(block, halves.data());
        for (std::size_t i = 0; i < words.size(); ++i) {
          REQUIRE(words[i] == dropout_words(key, sample, block + i / 4)[i % 4]);
          REQUIRE(words[i] == (halves[2 * i] | std::uint32_t{halves[2 * i + 1]} << 16U));
        }
      }
    }
  }
}

TEST_CASE("dropout factors follow the words from any first element") {
  for (const DropoutKey& key : keys()) {
    const std::uint32_t threshold = dropout_threshold(key.probability);
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, kBeyond, kBeyond + 1}) {
      for (const std::size_t count : {0U, 1U, 3U, 31U, 32U, 33U, 100U}) {
        std::vector<float> factors(count + 1, -1.0F);  // the last one is a sentinel
        const simd::DropoutFactors drawn(key, 2);
        drawn.draw(first, std::span<float>(factors.data(), count));
        REQUIRE(factors[count] == -1.0F);
        for (std::size_t i = 0; i < count; ++i) {
          const std::uint64_t element = first + i;
          const bool dropped = dropout_words(key, 2, element / 4)[element % 4] < threshold;
          REQUIRE(factors[i] == (dropped ? 0.0F : 1.0F / (1.0F - key.probability)));
        }
      }
    }
  }
}

}  // namespace slackline
