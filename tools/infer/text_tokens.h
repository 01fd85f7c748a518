#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "tools/infer/model_loader.h"

namespace slackline {

// Returns the ids of a text, or without a tokenizer those that it lists, separated by spaces. May
// be empty. `what` starts messages. Throws ConfigError for text that is not UTF-8, and for words
// that are no ids of the model.
[[nodiscard]] std::vector<TokenId> tokens_of_text(const InferenceModel& model,
                                                  std::string_view text,
                                                  const std::string& what);

// A text and what follows it, as the tokens of both together. Tokens that hold characters of both
// are of what follows. Without a tokenizer ids follow ids.
struct FollowedText {
  std::vector<TokenId> before{};  // an end-of-text where the text has none
  std::vector<TokenId> after{};
};

// A text that several others follow, which is encoded once as far as they cannot change its tokens.
class TextBefore {
 public:
  // The model must outlive it. Throws ConfigError as tokens_of_text().
  TextBefore(const InferenceModel& model, const std::string& text, std::string what);

  // Throws ConfigError as tokens_of_text(), and without a tokenizer where the text has no ids.
  [[nodiscard]] FollowedText followed_by(const std::string& after) const;

 private:
  const InferenceModel* model_;
  std::string what_;
  // Of the text, from the last place on where it may be cut.
  std::string rest_{};
  TextPart rest_part_ = TextPart::start;
  std::vector<TokenId> ids_;
  std::vector<TokenId> ids_before_rest_{};
};

}  // namespace slackline
