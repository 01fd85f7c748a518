#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// Turns tokens that come one by one into text to show at once: the text of all of them is that of
// the whole sequence, though a token may stand for part of a character or for a word whose space
// depends on what came before. Without a tokenizer the text is the ids, separated by spaces.
class TextStream {
 public:
  // The tokenizer must outlive this; may be null.
  explicit TextStream(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  // Returns the text that is certain after these tokens, which may be none.
  [[nodiscard]] std::string add(std::span<const TokenId> tokens);

  // Returns what is left: bytes of a character that never ended.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::string new_text() const;

  const Tokenizer* tokenizer_;
  // Tokens from begin_ on are decoded together; those before shown_ have been shown. One stretch
  // of shown tokens is kept as what the next ones follow.
  std::vector<TokenId> tokens_;
  std::size_t begin_ = 0;
  std::size_t shown_ = 0;
};

}  // namespace slackline
