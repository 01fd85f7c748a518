#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace slackline {

// NumPy's legacy generator, numpy.random.RandomState(seed), as far as shuffling goes. Its Mersenne
// Twister is seeded as std::mt19937 is.
class NumpyShuffler {
 public:
  explicit NumpyShuffler(std::uint32_t seed) : words_(seed) {}

  // Leaves `values` as RandomState.shuffle does. Calls continue the stream of one generator.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) {
      std::swap(values[i], values[draw(i)]);
    }
  }

 private:
  // A number from 0 to `max`: drawn with as many low bits as `max` has, again while it is larger.
  std::uint64_t draw(std::uint64_t max) {
    const bool wide = max > 0xffffffffU;
    const std::uint64_t mask = ~std::uint64_t{0} >> static_cast<unsigned>(std::countl_zero(max));
    while (true) {
      std::uint64_t word = words_();
      if (wide) {
        word = (word << 32U) | words_();
      }
      if ((word & mask) <= max) {
        return word & mask;
      }
    }
  }

  std::mt19937 words_;
};

}  // namespace slackline
