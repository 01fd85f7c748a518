#include "tools/infer/text_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "data/tokenizers/utf8.h"

namespace slackline {

namespace {

// "15 496 995"
std::vector<TokenId> read_ids(std::string_view text, int vocab, const std::string& what) {
  std::vector<TokenId> ids;
  for (std::size_t begin = 0; (begin = text.find_first_not_of(' ', begin)) != text.npos;) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    TokenId id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0 || id >= vocab) {
      throw ConfigError(
          fmt::format("{}: the checkpoint has no tokenizer, so text must be token ids "
                      "from 0 to {} separated by spaces; got {}",
                      what,
                      vocab - 1,
                      word));
    }
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

void require_utf8(std::string_view text, const std::string& what) {
  if (check_utf8(text).valid != text.size()) {
    throw ConfigError(what + ": must be UTF-8");
  }
}

}  // namespace

std::vector<TokenId> tokens_of_text(const InferenceModel& model,
                                    std::string_view text,
                                    const std::string& what) {
  if (model.tokenizer == nullptr) {
    return read_ids(text, model.config.vocab, what);
  }
  require_utf8(text, what);
  return model.tokenizer->encode(text);
}

TextBefore::TextBefore(const InferenceModel& model, const std::string& text, std::string what)
    : model_(&model), what_(std::move(what)), ids_(tokens_of_text(model, text, what_)) {
  if (model.tokenizer == nullptr) {
    return;
  }
  const std::size_t cut = model.tokenizer->split_point(text);
  rest_ = text.substr(cut);
  if (cut > 0) {
    rest_part_ = TextPart::continuation;
    ids_before_rest_ = model.tokenizer->encode(std::string_view(text).substr(0, cut));
  }
}

FollowedText TextBefore::followed_by(const std::string& after) const {
  FollowedText text{.before = ids_};
  if (model_->tokenizer == nullptr) {
    text.after = tokens_of_text(*model_, after, what_);
    if (text.before.empty() || text.after.empty()) {
      throw ConfigError(what_ + ": the checkpoint has no tokenizer, so each text needs a token id");
    }
    return text;
  }
  require_utf8(after, what_);
  std::vector<TokenId> both = ids_before_rest_;
  model_->tokenizer->encode_part(rest_ + after, rest_part_, both);
  const auto [own, common] = std::ranges::mismatch(text.before, both);
  text.after.assign(common, both.end());
  text.before.erase(own, text.before.end());
  if (text.before.empty()) {
    text.before.push_back(model_->tokenizer->end_of_text());
  }
  return text;
}

}  // namespace slackline
