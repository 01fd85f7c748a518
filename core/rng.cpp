#include "core/rng.h"

#include <cmath>
#include <numbers>
#include <xxhash.h>

namespace slackline {

namespace {

// 53 random bits as a number in [0, 1).
double to_unit(std::uint32_t upper, std::uint32_t lower) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(upper) << 32U | lower) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

PhiloxKey philox_key(std::uint64_t seed, std::string_view name) {
  const std::uint64_t hash = XXH3_64bits_withSeed(name.data(), name.size(), seed);
  return {low_word(hash), high_word(hash)};
}

std::array<double, 2> normal_pair(PhiloxKey key, std::uint64_t pair) {
  const PhiloxBlock words = philox(key, {low_word(pair), high_word(pair), 0, 0});
  const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(words[0], words[1])));
  const double angle = 2.0 * std::numbers::pi * to_unit(words[2], words[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

void draw_normal(std::span<float> values, PhiloxKey key, std::size_t first, double deviation) {
  for (std::size_t i = 0; i < values.size();) {
    const std::size_t element = first + i;
    const std::array<double, 2> numbers = normal_pair(key, element / 2);
    for (std::size_t k = element % 2; k < 2 && i < values.size(); ++k, ++i) {
      values[i] = static_cast<float>(deviation * numbers[k]);
    }
  }
}

double uniform_number(PhiloxKey key, std::uint64_t index) {
  const PhiloxBlock words = philox(key, {low_word(index), high_word(index), 0, 0});
  return to_unit(words[0], words[1]);
}

std::uint32_t dropout_threshold(float probability) {
  return static_cast<std::uint32_t>(std::llround(static_cast<double>(probability) * 0x1p32));
}

}  // namespace slackline
