#include "tools/infer/text_stream.h"

#include <fmt/format.h>

#include "data/tokenizers/utf8.h"

namespace slackline {

namespace {

// A character that is not whole yet waits for its other bytes; SentencePiece shows it as U+FFFD.
// Bytes that can never become a character are shown as they are.
bool is_certain(std::string_view text) {
  return !text.empty() && !check_utf8(text).truncated && !text.ends_with("\xef\xbf\xbd");
}

}  // namespace

std::string TextStream::add(std::span<const TokenId> tokens) {
  if (tokenizer_ == nullptr) {
    std::string ids;
    for (const TokenId token : tokens) {
      ids += fmt::format("{}{}", shown_++ == 0 ? "" : " ", token);
    }
    return ids;
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  std::string text = new_text();
  if (!is_certain(text)) {
    return "";
  }
  if (text.find_first_not_of(' ') != std::string::npos) {
    begin_ = shown_;  // SentencePiece leaves out spaces that a text begins with
  }
  shown_ = tokens_.size();
  return text;
}

std::string TextStream::finish() {
  return tokenizer_ == nullptr ? "" : new_text();
}

std::string TextStream::new_text() const {
  const std::span<const TokenId> tokens = std::span(tokens_).subspan(begin_);
  const std::string before = tokenizer_->decode(tokens.first(shown_ - begin_));
  return tokenizer_->decode(tokens).substr(before.size());
}

}  // namespace slackline
