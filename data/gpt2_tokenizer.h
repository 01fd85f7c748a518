#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/byte_pair_merges.h"
#include "data/tokenizer.h"

namespace slackline {

// What vocab.json and merges.txt say. Tokens are in GPT-2's spelling: each byte of a token is
// written as a printable character ("Ġthe" is " the").
struct Gpt2Vocabulary {
  std::vector<std::string> tokens;  // by id; empty where no token has the id
  std::vector<std::pair<std::string, std::string>> merges;  // first merges first
};

// GPT-2's byte-level byte-pair encoding. Text is cut into words (data/gpt2_split.h); a word begins
// as its bytes, and the neighbours whose merge comes first in the list are merged, the leftmost
// first, until no neighbours have one.
//
// "<|endoftext|>" in a text is text like any other: only `prepare` writes the token, so a
// document cannot end early by what it says.
class Gpt2Tokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kType = "gpt2";
  static constexpr std::string_view kEndOfText = "<|endoftext|>";

  // Throws FileError, which begins with `source`, where a byte has no token, a merge makes what is
  // not a token, or end-of-text is missing.
  Gpt2Tokenizer(Gpt2Vocabulary vocabulary, const std::string& source);

  using Tokenizer::encode;

  [[nodiscard]] std::string_view type() const override { return kType; }

  [[nodiscard]] std::int64_t vocabulary_size() const override;

  [[nodiscard]] TokenId end_of_text() const override { return end_of_text_; }

  void encode(std::string_view text, TextPart part, std::vector<TokenId>& ids) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::size_t split_point(std::string_view text) const override;

  [[nodiscard]] const Gpt2Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct WordHash {
    using is_transparent = void;  // finds a string_view without making a string of it

    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>{}(word);
    }
  };

  using WordCache =
      std::unordered_map<std::string, std::vector<TokenId>, WordHash, std::equal_to<>>;

  [[nodiscard]] std::vector<TokenId> merge_word(std::string_view word) const;

  Gpt2Vocabulary vocabulary_;
  std::vector<std::string> bytes_;  // of each token
  std::vector<TokenId> byte_ids_;   // the token of each single byte
  BytePairMerges merges_;
  TokenId end_of_text_ = 0;
  mutable WordCache cache_;  // words met lately: text repeats itself
};

}  // namespace slackline
