#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// The merges of a byte-pair encoding: which two neighbours become which token, in which order of
// preference.
class BytePairMerges {
 public:
  // Appends a merge that comes after all others. The last of several for the same pair holds, as
  // in Hugging Face's library.
  void add(TokenId left, TokenId right, TokenId result);

  // Merges neighbours of `ids` until none have a merge left: always the pair whose merge was added
  // first, of several such pairs the leftmost. Takes O(n log n).
  void apply(std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;  // place in the order
    TokenId result = 0;
  };
  class Word;  // tokens while they are merged

  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;  // by both ids
  std::uint32_t next_rank_ = 0;
};

}  // namespace slackline
