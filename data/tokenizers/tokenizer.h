#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slackline {

using TokenId = std::int32_t;

// Where a piece of text stands in its document. SentencePiece marks the start of a text, so the
// pieces after the first must say what they are.
enum class TextPart : std::uint8_t { start, continuation };

// Turns UTF-8 text into token ids and back. Saved beside every data set and in every checkpoint
// (data/formats/tokenizer_file.h).
//
// 1. Ids are 0 .. vocabulary_size() - 1.
// 2. Text never encodes to end_of_text(), unless special tokens in text were asked for: only
//    `prepare` writes it, after each document.
// 3. For n = split_point(text): encode_part(text + more, part) appends what
//    encode_part(text[0, n), part) and encode_part(text[n, end) + more, continuation) append one
//    after the other, whatever `more` is. So a file is encoded in pieces, and gives the ids of the
//    whole.
//
// Encoding may use a cache inside: one thread at a time.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  [[nodiscard]] virtual std::string_view type() const = 0;  // "byte", "sentencepiece", "gpt2", "hf"
  [[nodiscard]] virtual std::int64_t vocabulary_size() const = 0;
  [[nodiscard]] virtual TokenId end_of_text() const = 0;

  // Appends the ids of `text` to `ids`. REQUIRES: text is valid UTF-8.
  virtual void encode_part(std::string_view text,
                           TextPart part,
                           std::vector<TokenId>& ids) const = 0;

  // The bytes that the ids stand for: not always whole characters. An end-of-text reads as
  // nothing; ids that no text has (padding of a model's vocabulary) read as U+FFFD.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> ids) const = 0;

  // The last place where `text` may be cut (invariant 3), 0 where there is none.
  // REQUIRES: text is valid UTF-8.
  [[nodiscard]] virtual std::size_t split_point(std::string_view text) const = 0;

  [[nodiscard]] std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> ids;
    encode_part(text, TextPart::start, ids);
    return ids;
  }

 protected:
  static constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
};

}  // namespace slackline
