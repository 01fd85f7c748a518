#pragma once

#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// Whether every prefix of `text` that ends with a character, cut at its split point, gives the ids
// of the whole text when the rest follows as a continuation.
inline bool pieces_equal_whole(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> whole = tokenizer.encode(text);
  for (std::size_t size = 0; size <= text.size(); ++size) {
    if (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xc0U) == 0x80U) {
      continue;
    }
    const std::string_view prefix = std::string_view(text).substr(0, size);
    const std::size_t cut = tokenizer.split_point(prefix);
    std::vector<TokenId> ids;
    tokenizer.encode_part(prefix.substr(0, cut), TextPart::start, ids);
    const TextPart rest = cut == 0 ? TextPart::start : TextPart::continuation;
    tokenizer.encode_part(std::string_view(text).substr(cut), rest, ids);
    if (ids != whole) {
      return false;
    }
  }
  return true;
}

}  // namespace slackline
