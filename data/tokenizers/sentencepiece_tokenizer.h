#pragma once

#include <array>
#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace slackline {

// A SentencePiece model, encoded by the library that defines it. End-of-text is the model's own
// </s>, or one id past its pieces where it has none.
//
// Where a text may be cut: most models have no piece that holds a space (or a line break) after
// another character, and then nothing merges across one. Such a model is asked at construction how
// the text after a cut must be given to it so that the ids are those of the whole: as it stands,
// without the white space (a model that puts a space before every text), or as it stands with the
// token of that space taken off again. A model for which none of them works is given every text as
// a whole.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  static constexpr std::string_view kType = "sentencepiece";

  // `model` is the content of a .model file. Throws FileError, which begins with `source`.
  SentencePieceTokenizer(std::string model, const std::string& source);
  SentencePieceTokenizer(const SentencePieceTokenizer&) = delete;
  SentencePieceTokenizer& operator=(const SentencePieceTokenizer&) = delete;
  ~SentencePieceTokenizer() override;

  [[nodiscard]] std::string_view type() const override { return kType; }

  [[nodiscard]] std::int64_t vocabulary_size() const override;

  [[nodiscard]] TokenId end_of_text() const override { return end_of_text_; }

  void encode_part(std::string_view text, TextPart part, std::vector<TokenId>& ids) const override;
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const override;
  [[nodiscard]] std::size_t split_point(std::string_view text) const override;

  [[nodiscard]] const std::string& model() const { return model_; }

 private:
  // How the text after a cut is encoded. none: no cut there.
  enum class Continuation : std::uint8_t { none, as_is, without_space, without_first_token };
  // The white space that a text may be cut before.
  static constexpr std::array<char, 2> kSeparators = {' ', '\n'};

  [[nodiscard]] std::vector<TokenId> encode_whole(std::string_view text) const;
  [[nodiscard]] std::vector<TokenId> encode_continuation(std::string_view text,
                                                         Continuation how) const;
  [[nodiscard]] bool pieces_keep_words_apart() const;
  [[nodiscard]] Continuation find_continuation(char separator) const;
  [[nodiscard]] Continuation continuation_at(char c) const;

  std::string model_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  TokenId end_of_text_ = 0;
  TokenId space_ = 0;  // the piece of a lone space
  std::array<Continuation, kSeparators.size()> continuations_{};
};

}  // namespace slackline
