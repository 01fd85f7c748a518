#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/tensor/device_fault.h"
#include "core/tensor/stream.h"
#include "core/tensor/tensor.h"

namespace slackline {

// The Elias-Fano code of k ascending indices below n (Elias, "Efficient storage and retrieval by
// content and address of static files", 1974): its size depends on n and k alone and is within half
// a bit an index of the least that any code of fixed size needs. With l = floor(log2(n / k)), words
// of 32 bits hold, low bits first,
//   the upper parts: bit (index j >> l) + j is one for each j, all others are zero;
//   from the next whole word on, the lower parts: the low l bits of index j at bit j * l.
// Bits that fill the last word of either are zero.
struct EliasFano {
  std::size_t n = 0;
  std::size_t k = 0;  // at most n; n fits 32 bits

  [[nodiscard]] constexpr unsigned low_bits() const {
    return k == 0 ? 0U : static_cast<unsigned>(std::bit_width(n / k)) - 1U;
  }

  [[nodiscard]] constexpr std::size_t upper_words() const {
    return k == 0 ? 0 : (k + ((n - 1) >> low_bits()) + kWordBits - 1) / kWordBits;
  }

  [[nodiscard]] constexpr std::size_t lower_words() const {
    return (k * low_bits() + kWordBits - 1) / kWordBits;
  }

  [[nodiscard]] constexpr std::size_t words() const { return upper_words() + lower_words(); }

  static constexpr unsigned kWordBits = 32;
};

// Decoding cuts the upper parts into ranges of words, counts the ones of each and adds the counts
// up, so that each range knows the number of its first index.
inline constexpr std::size_t kUpperWordsPerRange = 1024;

[[nodiscard]] constexpr std::size_t num_upper_ranges(const EliasFano& code) {
  return (code.upper_words() + kUpperWordsPerRange - 1) / kUpperWordsPerRange;
}

// Writes the code of `indices` (k) u32, strictly ascending and below n, into `words`
// (EliasFano{n, k}.words()) u32.
void elias_fano_encode(StreamView stream,
                       const Tensor& indices,
                       std::size_t n,
                       const Tensor& words);

// Raises faults: what a message is called in them, and who throws.
struct FaultNote {
  std::uint32_t tag = 0;
  void (*raise)(const DeviceFault& fault) = nullptr;
};

// Writes the indices of a code, whatever its words hold, without a step outside of either tensor:
// codes that come from outside may be damaged. Raises a fault unless the upper parts have k ones:
// its words are how many they have, k and the note's tag; at once and before anything is written,
// or on the CUDA device at the next Stream::synchronize(). Whether the indices ascend below n is
// check_ascending()'s to say (message_checks.h). Scratch on the stream's workspace:
// elias_fano_workspace_bytes().
void elias_fano_decode(StreamView stream,
                       const Tensor& words,
                       std::size_t n,
                       const FaultNote& note,
                       const Tensor& indices);

[[nodiscard]] std::size_t elias_fano_workspace_bytes(const EliasFano& code);

}  // namespace slackline
