#include "data/tokenizers/added_tokens.h"

#include <algorithm>
#include <utility>

#include "data/tokenizers/nfc.h"
#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

constexpr std::size_t kLongestCharacter = 4;  // bytes of UTF-8

// Finds where the white space before `position` begins, but not before `first`.
std::size_t space_start(std::string_view text, std::size_t position, std::size_t first) {
  while (position > first) {
    const Utf8Char before = char_before(text, position);
    if (kind_of(before.value) != CharKind::space) {
      break;
    }
    position -= before.bytes;
  }
  return position;
}

std::size_t space_end(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Utf8Char next = char_at(text, position);
    if (kind_of(next.value) != CharKind::space) {
      break;
    }
    position += next.bytes;
  }
  return position;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, SpecialTokens special)
    : tokens_(std::move(tokens)), special_(special) {
  const bool finds_any = std::any_of(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
    return !token.special || special == SpecialTokens::recognized;
  });
  for (std::size_t token = 0; finds_any && token < tokens_.size(); ++token) {
    add(token);
  }
}

void AddedTokenFinder::add(std::size_t token) {
  const std::string& content = tokens_[token].content;
  std::uint32_t node = 0;
  for (const char byte : content) {
    const std::uint64_t key = (std::uint64_t{node} << 8U) | static_cast<unsigned char>(byte);
    const auto [edge, added] = next_.try_emplace(key, static_cast<std::uint32_t>(ends_.size()));
    if (added) {
      ends_.push_back(0);
    }
    node = edge->second;
  }
  ends_[node] = token + 1;
  longest_ = std::max(longest_, content.size());
}

AddedTokenFinder::Match AddedTokenFinder::match_at(std::string_view text,
                                                   std::size_t position) const {
  Match match;
  std::uint32_t node = 0;
  for (std::size_t place = position;; ++place) {
    if (ends_[node] > 0) {
      match.token = ends_[node] - 1;
      match.bytes = place - position;
    }
    match.walked = place - position;
    if (place == text.size()) {
      match.may_go_on = place > position;
      return match;
    }
    const std::uint64_t key = (std::uint64_t{node} << 8U) | static_cast<unsigned char>(text[place]);
    const auto edge = next_.find(key);
    if (edge == next_.end()) {
      return match;
    }
    node = edge->second;
  }
}

std::vector<AddedTokenFinder::Stretch> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Stretch> stretches;
  std::size_t done = 0;
  std::size_t known_space_end = 0;
  for (std::size_t position = longest_ == 0 ? text.size() : 0; position < text.size();) {
    const Match match = match_at(text, position);
    if (match.bytes == 0) {
      ++position;
      continue;
    }
    std::size_t begin = position;
    std::size_t end = position + match.bytes;
    position = end;
    const AddedToken& token = tokens_[match.token];
    if (token.special && special_ == SpecialTokens::as_text) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(space_start(text, begin, std::min(begin, done)), done);
    }
    if (token.rstrip) {
      if (end >= known_space_end) {
        known_space_end = space_end(text, end);
      }
      end = known_space_end;
    }
    if (done < begin) {
      stretches.push_back({.begin = done, .end = begin});
    }
    stretches.push_back({.id = token.id, .begin = begin, .end = end});
    done = end;
  }
  if (done != text.size()) {
    stretches.push_back({.begin = done, .end = text.size()});
  }
  return stretches;
}

bool AddedTokenCover::touches(std::size_t position) {
  if (finder_.longest() == 0) {
    return false;
  }
  known_.resize(text_.size() + 1, -1);
  const std::size_t window = finder_.longest() + kLongestCharacter;
  for (std::size_t start = position - std::min(position, window); start <= position; ++start) {
    std::int32_t& known = known_[start];
    if (known < 0) {
      known = static_cast<std::int32_t>(bytes_from(start));
    }
    if (known > 0 && start + static_cast<std::size_t>(known) >= position) {
      return true;
    }
  }
  return false;
}

// A character whose normal form depends on what is around it may be part of any token.
std::size_t AddedTokenCover::bytes_from(std::size_t start) const {
  const std::size_t most = finder_.longest() + kLongestCharacter;
  if (start == text_.size()) {
    return most;
  }
  if (!begins_character(text_[start])) {
    return 0;
  }
  const AddedTokenFinder::Match match = finder_.match_at(text_, start);
  if (match.may_go_on) {
    return most;
  }
  if (kind_ == Text::normalized_later) {
    for (std::size_t place = start; place <= start + match.walked && place < text_.size();
         place += char_at(text_, place).bytes) {
      if (!is_settled(place)) {
        return most;
      }
    }
  }
  return match.bytes;
}

bool AddedTokenCover::is_settled(std::size_t position) const {
  const Utf8Char here = char_at(text_, position);
  const std::size_t next = position + here.bytes;
  return stays_in_nfc(here.value) && next < text_.size() &&
         stays_in_nfc(char_at(text_, next).value);
}

}  // namespace slackline
