#include "data/tokenizers/byte_level_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "data/tokenizers/nfc.h"
#include "data/tokenizers/utf8.h"

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

// The bytes a token stands for; nothing where a character spells no byte.
std::optional<std::string> spelled_bytes(const std::string& token, const SpellingMap& byte_of) {
  std::string bytes;
  for (std::size_t position = 0; position < token.size();) {
    const Utf8Char next = char_at(token, position);
    const auto byte = byte_of.find(next.value);
    if (byte == byte_of.end()) {
      return std::nullopt;
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

std::vector<AddedToken> tokens_of_pass(const ByteLevelVocabulary& vocabulary, bool normalized) {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : vocabulary.added) {
    if (token.normalized == normalized) {
      tokens.push_back(token);
      if (normalized && vocabulary.nfc) {
        tokens.back().content = to_nfc(token.content);
      }
    }
  }
  return tokens;
}

}  // namespace

bool ByteLevelVocabulary::is_gpt2() const {
  const bool end_alone = added.size() == 1 && added[0].content == kGpt2EndOfText &&
                         added[0].special && !added[0].lstrip && !added[0].rstrip;
  return pattern == WordPattern::gpt2 && !nfc && !prefix_space && !whole_words && end_alone &&
         end_of_text == kGpt2EndOfText;
}

ByteLevelTokenizer::ByteLevelTokenizer(ByteLevelVocabulary vocabulary, const std::string& source)
    : vocabulary_(std::move(vocabulary)),
      in_text_(tokens_of_pass(vocabulary_, false), vocabulary_.special_tokens),
      in_normalized_(tokens_of_pass(vocabulary_, true), vocabulary_.special_tokens) {
  read_tokens(source);
}

void ByteLevelTokenizer::read_tokens(const std::string& source) {
  const std::array<char32_t, kBytes> spelling = byte_spelling();
  SpellingMap byte_of;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    byte_of[spelling[byte]] = static_cast<char>(byte);
  }
  TokenIds ids;
  for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
    const std::string& token = vocabulary_.tokens[id];
    const std::optional<std::string> bytes = spelled_bytes(token, byte_of);
    bytes_.push_back(bytes.value_or(token));
    if (!token.empty()) {
      ids.emplace(token, static_cast<TokenId>(id));
    }
    if (vocabulary_.whole_words && bytes && !bytes->empty()) {
      words_.emplace(*bytes, static_cast<TokenId>(id));
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
  for (const AddedToken& token : vocabulary_.added) {
    const auto id = static_cast<std::size_t>(token.id);
    bytes_.resize(std::max(bytes_.size(), id + 1));
    if (std::find(byte_ids_.begin(), byte_ids_.end(), token.id) == byte_ids_.end()) {
      bytes_[id] = token.content;
    }
    ids.emplace(token.content, token.id);
  }
  end_of_text_ = require_token(ids, vocabulary_.end_of_text, source, "end-of-text");
}

std::int64_t ByteLevelTokenizer::vocabulary_size() const {
  return static_cast<std::int64_t>(bytes_.size());
}

std::vector<TokenId> ByteLevelTokenizer::merge_word(std::string_view word) const {
  if (const auto whole = words_.find(word); whole != words_.end()) {
    return {whole->second};
  }
  std::vector<TokenId> ids;
  ids.reserve(word.size());
  for (const char byte : word) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  merges_.apply(ids);
  return ids;
}

void ByteLevelTokenizer::encode_part(std::string_view text,
                                     TextPart part,
                                     std::vector<TokenId>& ids) const {
  for (const auto& [id, begin, end] : in_text_.split(text)) {
    if (id != AddedTokenFinder::kText) {
      ids.push_back(id);
      continue;
    }
    const std::string_view piece = text.substr(begin, end - begin);
    const TextPart piece_part = begin == 0 ? part : TextPart::start;
    if (vocabulary_.nfc) {
      encode_normalized(to_nfc(piece), piece_part, ids);
    } else {
      encode_normalized(piece, piece_part, ids);
    }
  }
}

// Every piece between tokens is given a space in front, not only the first one.
void ByteLevelTokenizer::encode_normalized(std::string_view text,
                                           TextPart part,
                                           std::vector<TokenId>& ids) const {
  for (const auto& [id, begin, end] : in_normalized_.split(text)) {
    if (id != AddedTokenFinder::kText) {
      ids.push_back(id);
      continue;
    }
    const std::string_view piece = text.substr(begin, end - begin);
    const bool starts = begin > 0 || part == TextPart::start;
    if (vocabulary_.prefix_space && starts && !piece.starts_with(' ')) {
      std::string spaced(1, ' ');
      spaced += piece;
      encode_words(spaced, ids);
    } else {
      encode_words(piece, ids);
    }
  }
}

void ByteLevelTokenizer::encode_words(std::string_view text, std::vector<TokenId>& ids) const {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = word_end(vocabulary_.pattern, text, start);
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

std::string ByteLevelTokenizer::decode(std::span<const TokenId> ids) const {
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

// Between two words, where no added token may stand and where normalizing leaves both sides alone.
std::size_t ByteLevelTokenizer::split_point(std::string_view text) const {
  if (text.empty()) {
    return 0;
  }
  using Text = AddedTokenCover::Text;
  AddedTokenCover in_text(in_text_, text, Text::as_it_is);
  AddedTokenCover in_normalized(
      in_normalized_, text, vocabulary_.nfc ? Text::normalized_later : Text::as_it_is);
  const auto is_kept = [&](char32_t c) { return !vocabulary_.nfc || stays_in_nfc(c); };
  Utf8Char after = char_before(text, text.size());
  std::size_t position = text.size() - after.bytes;
  while (position > 0) {
    const Utf8Char before = char_before(text, position);
    if (always_apart(vocabulary_.pattern, before.value, after.value) && is_kept(before.value) &&
        is_kept(after.value) && !in_text.touches(position) && !in_normalized.touches(position)) {
      return position;
    }
    position -= before.bytes;
    after = before;
  }
  return 0;
}

}  // namespace slackline
