#pragma once

#include <cstddef>

#include "compress/kernels/sparse/elias_fano.h"

namespace slackline {

// Decoding cuts the upper parts into ranges of words, counts the ones of each and adds the counts
// up, so that each range knows the number of its first index.
inline constexpr std::size_t kUpperWordsPerRange = 1024;

[[nodiscard]] constexpr std::size_t num_upper_ranges(const EliasFano& code) {
  return (code.upper_words() + kUpperWordsPerRange - 1) / kUpperWordsPerRange;
}

}  // namespace slackline
