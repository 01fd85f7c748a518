#include "core/rng.h"

#include <cmath>
#include <numbers>
#include <xxhash.h>

namespace slackline {

namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

std::uint32_t low(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}

std::uint32_t high(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32U);
}

// 53 random bits as a number in [0, 1).
double to_unit(std::uint32_t upper, std::uint32_t lower) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(upper) << 32U | lower) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

PhiloxKey philox_key(std::uint64_t seed, std::string_view name) {
  const std::uint64_t hash = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  return {low(hash), high(hash)};
}

PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kMultiplier0) * counter[0];
    const std::uint64_t product1 = static_cast<std::uint64_t>(kMultiplier1) * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0],
               low(product1),
               high(product0) ^ counter[3] ^ key[1],
               low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

std::array<double, 2> normal_pair(PhiloxKey key, std::uint64_t pair) {
  const PhiloxBlock words = philox(key, {low(pair), high(pair), 0, 0});
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * to_unit(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double uniform_number(PhiloxKey key, std::uint64_t index) {
  const PhiloxBlock words = philox(key, {low(index), high(index), 0, 0});
  return to_unit(words[0], words[1]);
}

PhiloxBlock dropout_words(const DropoutKey& key, std::uint64_t sample, std::uint64_t block) {
  const PhiloxKey folded = {key.site[0] ^ high(sample), key.site[1] ^ high(key.step)};
  return philox(folded, {low(block), high(block), low(sample), low(key.step)});
}

std::uint32_t dropout_threshold(float probability) {
  return static_cast<std::uint32_t>(std::llround(static_cast<double>(probability) * 0x1p32));
}

}  // namespace slackline
