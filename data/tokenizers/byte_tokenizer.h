#pragma once

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// A token for each of the 256 bytes, and end-of-text as 256.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kType = "byte";

  using Tokenizer::encode;

  [[nodiscard]] std::string_view type() const override { return kType; }

  [[nodiscard]] std::int64_t vocabulary_size() const override { return 257; }

  [[nodiscard]] TokenId end_of_text() const override { return 256; }

  void encode(std::string_view text, TextPart part, std::vector<TokenId>& ids) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::size_t split_point(std::string_view text) const override;
};

}  // namespace slackline
