#pragma once

#include <string>
#include <string_view>
#include <utility>
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

// Throws ConfigError as tokens_of_text(), and without a tokenizer where the text has no ids.
[[nodiscard]] FollowedText followed_text(const InferenceModel& model,
                                         const std::string& before,
                                         const std::string& after,
                                         const std::string& what);

}  // namespace slackline
