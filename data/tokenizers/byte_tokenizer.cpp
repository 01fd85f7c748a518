#include "data/tokenizers/byte_tokenizer.h"

namespace slackline {

void ByteTokenizer::encode(std::string_view text, TextPart, std::vector<TokenId>& ids) const {
  ids.reserve(ids.size() + text.size());
  for (const char c : text) {
    ids.push_back(static_cast<unsigned char>(c));
  }
}

std::string ByteTokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  bytes.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id >= 0 && id < 256) {
      bytes.push_back(static_cast<char>(id));
    } else if (id != end_of_text()) {
      bytes += kReplacement;
    }
  }
  return bytes;
}

std::size_t ByteTokenizer::split_point(std::string_view text) const {
  return text.size();
}

}  // namespace slackline
