#pragma once

#include <cstddef>
#include <vector>

#include "core/rng.h"

namespace slackline::reference {

// What each element of `num_samples` samples is multiplied by, from the definition of DropoutKey.
[[nodiscard]] inline std::vector<double> dropout_factors(const DropoutKey& key,
                                                         std::size_t num_samples,
                                                         std::size_t elements_per_sample) {
  std::vector<double> factors;
  const double threshold = static_cast<double>(key.probability) * 0x1p32;
  for (std::size_t sample = 0; sample < num_samples; ++sample) {
    for (std::size_t e = 0; e < elements_per_sample; ++e) {
      const std::uint32_t word = dropout_words(key, key.first_sample + sample, e / 4)[e % 4];
      factors.push_back(word < threshold ? 0.0 : 1.0 / (1.0 - key.probability));
    }
  }
  return factors;
}

}  // namespace slackline::reference
