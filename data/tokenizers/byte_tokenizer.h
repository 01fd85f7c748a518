#pragma once

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// A token for each of the 256 bytes, and end-of-text as 256.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kType = "byte";

  [[nodiscard]] std::string_view type() const override { return kType; }

  [[nodiscard]] std::int64_t vocabulary_size() const override { return 257; }

  [[nodiscard]] TokenId end_of_text() const override { return 256; }

  void encode_part(std::string_view text, TextPart, std::vector<TokenId>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) {
      ids.push_back(static_cast<unsigned char>(c));
    }
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override {
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

  [[nodiscard]] std::size_t split_point(std::string_view text) const override {
    return text.size();
  }
};

}  // namespace slackline
