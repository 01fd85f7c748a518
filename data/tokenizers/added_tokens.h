#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// A token that stands beside a vocabulary's merges and is looked for in text as it is written.
struct AddedToken {
  TokenId id = 0;
  std::string content{};
  bool special = false;     // not text: only looked for where special tokens are wanted
  bool lstrip = false;      // takes the white space before it along
  bool rstrip = false;      // takes the white space after it along
  bool normalized = false;  // looked for in normalized text
};

enum class SpecialTokens : std::uint8_t { as_text, recognized };

// Finds added tokens in text: from the left, at each place the longest. A special token that counts
// as text still hides what begins inside it, as in Hugging Face's library.
class AddedTokenFinder {
 public:
  static constexpr std::size_t kLongestContent = 127;  // bytes; bounds the time that a search takes
  static constexpr TokenId kText = -1;

  AddedTokenFinder() = default;
  AddedTokenFinder(std::vector<AddedToken> tokens, SpecialTokens special);

  // A token or, with id kText, the text between two.
  struct Stretch {
    TokenId id = kText;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  [[nodiscard]] std::vector<Stretch> split(std::string_view text) const;

  // Longest content in bytes; 0 where nothing is looked for.
  [[nodiscard]] std::size_t longest() const { return longest_; }

  struct Match {
    std::size_t token = 0;   // index
    std::size_t bytes = 0;   // of the longest token; 0: none begins here
    std::size_t walked = 0;  // bytes that agree with some token's beginning
    bool may_go_on = false;  // the text ended before the token did
  };

  [[nodiscard]] Match match_at(std::string_view text, std::size_t position) const;

 private:
  void add(std::size_t token);

  std::vector<AddedToken> tokens_;
  SpecialTokens special_ = SpecialTokens::as_text;
  std::size_t longest_ = 0;
  // A tree of contents: the node that a byte leads to, by node and byte, and the token that ends
  // in a node (its index + 1; 0: none).
  std::unordered_map<std::uint64_t, std::uint32_t> next_;
  std::vector<std::size_t> ends_{0};
};

// Says for places of one text whether a token may touch them, whatever follows the text.
class AddedTokenCover {
 public:
  enum class Text : std::uint8_t { as_it_is, normalized_later };

  AddedTokenCover(const AddedTokenFinder& finder, std::string_view text, Text kind)
      : finder_(finder), text_(text), kind_(kind) {}

  [[nodiscard]] bool touches(std::size_t position);

 private:
  // Bytes from `start` on that a token may cover; 0: none begins there.
  [[nodiscard]] std::size_t bytes_from(std::size_t start) const;
  [[nodiscard]] bool is_settled(std::size_t position) const;

  const AddedTokenFinder& finder_;
  std::string_view text_;
  Text kind_;
  std::vector<std::int32_t> known_;  // bytes_from by place; -1: not asked yet
};

}  // namespace slackline
