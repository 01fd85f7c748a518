#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/byte_pair_merges.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/word_split.h"

namespace slackline {

// The description of a byte-level byte-pair encoding. Vocabulary tokens are in GPT-2's spelling:
// each byte of a token is written as a printable character ("Ġthe" is " the"). Contents of added
// tokens are text.
struct ByteLevelVocabulary {
  static constexpr std::string_view kGpt2EndOfText = "<|endoftext|>";

  std::vector<std::string> tokens;  // by id; empty where no token has the id
  std::vector<std::pair<std::string, std::string>> merges;  // first merges first
  std::vector<AddedToken> added{};
  WordPattern pattern = WordPattern::gpt2;
  bool nfc = false;           // text is brought into Unicode's normal form C first
  bool prefix_space = false;  // text that does not begin with a space is given one
  bool whole_words = false;   // a word that is a token is taken without merges
  std::string end_of_text{kGpt2EndOfText};
  SpecialTokens special_tokens = SpecialTokens::as_text;

  // Whether encoding is GPT-2's own, which vocab.json and merges.txt describe.
  [[nodiscard]] bool is_gpt2() const;
};

// GPT-2's byte-level byte-pair encoding and its relatives. Added tokens are taken out of the text;
// what is left is cut into words (data/tokenizers/word_split.h); a word begins as its bytes, and
// the neighbours whose merge comes first in the list are merged, the leftmost first, until no
// neighbours have one.
//
// A special token's content in a text ("<|endoftext|>") is text like any other unless
// special_tokens says otherwise, so a document cannot end early by what it says.
class ByteLevelTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kGpt2Type = "gpt2";
  static constexpr std::string_view kType = "hf";  // of all that is not GPT-2's own

  // Throws FileError, which begins with `source`, where a byte has no token, a merge makes what is
  // not a token, or end-of-text is missing.
  ByteLevelTokenizer(ByteLevelVocabulary vocabulary, const std::string& source);

  [[nodiscard]] std::string_view type() const override {
    return vocabulary_.is_gpt2() ? kGpt2Type : kType;
  }

  [[nodiscard]] std::int64_t vocabulary_size() const override;

  [[nodiscard]] TokenId end_of_text() const override { return end_of_text_; }

  void encode_part(std::string_view text, TextPart part, std::vector<TokenId>& ids) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::size_t split_point(std::string_view text) const override;

  [[nodiscard]] const ByteLevelVocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct WordHash {
    using is_transparent = void;  // finds a string_view without making a string of it

    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>{}(word);
    }
  };

  using WordCache =
      std::unordered_map<std::string, std::vector<TokenId>, WordHash, std::equal_to<>>;

  void read_tokens(const std::string& source);
  void encode_normalized(std::string_view text, TextPart part, std::vector<TokenId>& ids) const;
  void encode_words(std::string_view text, std::vector<TokenId>& ids) const;
  [[nodiscard]] std::vector<TokenId> merge_word(std::string_view word) const;

  ByteLevelVocabulary vocabulary_;
  std::vector<std::string> bytes_;  // of each token
  std::vector<TokenId> byte_ids_;   // the token of each single byte
  BytePairMerges merges_;
  std::unordered_map<std::string, TokenId, WordHash, std::equal_to<>> words_;  // for whole_words
  AddedTokenFinder in_text_;
  AddedTokenFinder in_normalized_;
  TokenId end_of_text_ = 0;
  mutable WordCache cache_;  // words met lately: text repeats itself
};

}  // namespace slackline
