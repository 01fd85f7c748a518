#pragma once

#include <algorithm>
#include <cstdint>

namespace slackline {

// How long the sequences are that one long text is stored in. Sample orders shuffle whole
// sequences and give whole sequences to the training and validation splits, so a text kept in one
// sequence could not be split at all. At least 64 of them let a split of 5 % be one; beyond 64 Ki
// elements more length gains nothing; below 4 Ki samples would hold too many seams.
[[nodiscard]] constexpr std::uint64_t stored_sequence_length(std::uint64_t elements) {
  constexpr std::uint64_t kSequences = 64;
  constexpr std::uint64_t kShortest = 4096;
  constexpr std::uint64_t kLongest = 65536;
  return std::clamp(elements / kSequences, kShortest, kLongest);
}

}  // namespace slackline
