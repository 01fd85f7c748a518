#pragma once

#include <cstdint>

#include "core/cuda/device.h"
#include "core/kernels/elementwise/dropout.h"

// The masks of dropout_add() on the device: the same bits as the CPU's.
namespace slackline::cuda {

// What elements are multiplied by: 0, or `kept`.
struct DropoutFactors {
  static constexpr int kWordsOfBlock = 4;  // elements that one counter decides

  DropoutKey key;  // first_sample is that of the first row
  std::uint32_t threshold;
  float kept;

  // Draws for elements element .. element + n - 1 of the sample. REQUIRES: n divides element.
  template <int n>
  __device__ Floats<n> draw(std::int64_t sample, std::int64_t element) const {
    static_assert(n % kWordsOfBlock == 0);
    Floats<n> factors;
#pragma unroll
    for (int first = 0; first < n; first += kWordsOfBlock) {
      const PhiloxBlock words =
          dropout_words(key,
                        key.first_sample + static_cast<std::uint64_t>(sample),
                        static_cast<std::uint64_t>(element + first) / kWordsOfBlock);
#pragma unroll
      for (int i = 0; i < kWordsOfBlock; ++i) {
        factors[first + i] = words[i] < threshold ? 0.0F : kept;
      }
    }
    return factors;
  }
};

[[nodiscard]] inline DropoutFactors dropout_factors(const DropoutAdd& args) {
  DropoutFactors factors{.key = args.key,
                         .threshold = dropout_threshold(args.key.probability),
                         .kept = 1.0F / (1.0F - args.key.probability)};
  factors.key.first_sample += static_cast<std::uint64_t>(args.first_row / args.rows_per_sample);
  return factors;
}

}  // namespace slackline::cuda
