#include "data/gpt2_tokenizer.h"

#include <array>

#include <fmt/format.h>

#include "core/error.h"
#include "data/gpt2_split.h"
#include "data/utf8.h"

namespace slackline {
namespace {

constexpr std::size_t kCachedWords = std::size_t{1} << 16U;
constexpr std::size_t kCachedWordBytes = 64;  // longer words hardly come back
constexpr std::size_t kBytes = 256;

// The characters that spell the bytes: printable ones of Latin-1 stand for themselves, the others
// are numbered from U+0100 on.
std::array<char32_t, kBytes> byte_spelling() {
  std::array<char32_t, kBytes> spelling{};
  char32_t next = kBytes;
  for (char32_t byte = 0; byte < kBytes; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
    spelling[byte] = printable ? byte : next++;
  }
  return spelling;
}

std::string utf8_below_800(char32_t code) {  // no byte is spelled by a character from U+0800 on
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  return {static_cast<char>(0xc0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3fU))};
}

using SpellingMap = std::unordered_map<char32_t, char>;

// The bytes a token stands for. A character that spells no byte is only found in tokens added by
// hand, which stand for themselves.
std::string token_bytes(const std::string& token, const SpellingMap& byte_of) {
  std::string bytes;
  for (std::size_t position = 0; position < token.size();) {
    const Utf8Char next = char_at(token, position);
    const auto byte = byte_of.find(next.value);
    if (byte == byte_of.end()) {
      return token;
    }
    bytes.push_back(byte->second);
    position += next.bytes;
  }
  return bytes;
}

using TokenIds = std::unordered_map<std::string_view, TokenId>;

TokenId require_token(const TokenIds& ids,
                      std::string_view token,
                      const std::string& source,
                      std::string_view why) {
  const auto found = ids.find(token);
  if (found == ids.end()) {
    throw FileError(
        fmt::format("{}: {} is not a token of the vocabulary: '{}'", source, why, token));
  }
  return found->second;
}

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(Gpt2Vocabulary vocabulary, const std::string& source)
    : vocabulary_(std::move(vocabulary)) {
  const std::array<char32_t, kBytes> spelling = byte_spelling();
  SpellingMap byte_of;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    byte_of[spelling[byte]] = static_cast<char>(byte);
  }
  TokenIds ids;
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const std::string& token = vocabulary_.tokens[id];
    bytes_.push_back(token_bytes(token, byte_of));
    if (!token.empty()) {
      ids.emplace(token, static_cast<TokenId>(id));
    }
  }
  for (const char32_t character : spelling) {
    const std::string token = utf8_below_800(character);
    byte_ids_.push_back(require_token(ids, token, source, "the spelling of a byte"));
  }
  for (const auto& [left, right] : vocabulary_.merges) {
    const TokenId left_id = require_token(ids, left, source, "the left side of a merge");
    const TokenId right_id = require_token(ids, right, source, "the right side of a merge");
    const TokenId result = require_token(ids, left + right, source, "the result of a merge");
    merges_.add(left_id, right_id, result);
  }
  end_of_text_ = require_token(ids, kEndOfText, source, "end-of-text");
}

std::int64_t Gpt2Tokenizer::vocabulary_size() const {
  return static_cast<std::int64_t>(vocabulary_.tokens.size());
}

std::vector<TokenId> Gpt2Tokenizer::merge_word(std::string_view word) const {
  std::vector<TokenId> ids;
  ids.reserve(word.size());
  for (const char byte : word) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  merges_.apply(ids);
  return ids;
}

void Gpt2Tokenizer::encode(std::string_view text, TextPart, std::vector<TokenId>& ids) const {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = gpt2_word_end(text, start);
    const std::string_view word = text.substr(start, end - start);
    start = end;
    if (word.size() > kCachedWordBytes) {
      const std::vector<TokenId> merged = merge_word(word);
      ids.insert(ids.end(), merged.begin(), merged.end());
      continue;
    }
    auto found = cache_.find(word);
    if (found == cache_.end()) {
      if (cache_.size() >= kCachedWords) {
        cache_.clear();
      }
      found = cache_.emplace(word, merge_word(word)).first;
    }
    ids.insert(ids.end(), found->second.begin(), found->second.end());
  }
}

std::string Gpt2Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (id == end_of_text_) {
      continue;
    }
    const bool known = id >= 0 && id < vocabulary_size() && !bytes_[id].empty();
    bytes += known ? std::string_view(bytes_[id]) : kReplacement;
  }
  return bytes;
}

std::size_t Gpt2Tokenizer::split_point(std::string_view text) const {
  return gpt2_last_word_start(text);
}

}  // namespace slackline
