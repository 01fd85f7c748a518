#include "data/formats/tokenizer_file.h"

#include <algorithm>
#include <openssl/evp.h>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/shown_text.h"
#include "core/strict_json.h"
#include "data/formats/hugging_face_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"

namespace slackline {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "slackline-tokenizer";
constexpr int kVersion = 1;
constexpr const char* kSpecialTokens = "special_tokens";

std::string to_base64(const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // the library ends it with a NUL
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string from_base64(const std::string& text, const std::string& source) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || text.size() % 4 != 0) {
    throw FileError(fmt::format("{}: 'model' is not base64", source));
  }
  const std::size_t padding = text.size() - (text.find_last_not_of('=') + 1);
  if (padding > 2) {
    throw FileError(fmt::format("{}: 'model' is not base64", source));
  }
  bytes.resize(static_cast<std::size_t>(size) - padding);  // padding decodes to zeros
  return bytes;
}

Json added_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"special", token.special},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized}});
  }
  return list;
}

void write_byte_level(const ByteLevelVocabulary& vocabulary, Json& json) {
  Json tokens = Json::array();
  for (const std::string& token : vocabulary.tokens) {
    tokens.push_back(token.empty() ? Json() : Json(token));
  }
  json["tokens"] = std::move(tokens);
  json["merges"] = vocabulary.merges;
  if (vocabulary.special_tokens == SpecialTokens::recognized) {
    json[kSpecialTokens] = true;
  }
  if (vocabulary.is_gpt2()) {
    return;
  }
  json["added"] = added_json(vocabulary.added);
  json["pattern"] = vocabulary.pattern == WordPattern::gpt2 ? "gpt2" : "cl100k";
  json["nfc"] = vocabulary.nfc;
  json["prefix_space"] = vocabulary.prefix_space;
  json["whole_words"] = vocabulary.whole_words;
}

// GPT-2's end-of-text is its one special token.
void add_gpt2_special(ByteLevelVocabulary& vocabulary) {
  const auto found =
      std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), vocabulary.end_of_text);
  if (found != vocabulary.tokens.end()) {
    vocabulary.added = {{.id = static_cast<TokenId>(found - vocabulary.tokens.begin()),
                         .content = vocabulary.end_of_text,
                         .special = true}};
  }
}

void read_added(const Json& json, ByteLevelVocabulary& vocabulary, const std::string& source) {
  for (const Json& entry : json) {
    AddedToken token{.id = entry.at("id").get<TokenId>(),
                     .content = entry.at("content").get<std::string>(),
                     .special = entry.at("special").get<bool>(),
                     .lstrip = entry.at("lstrip").get<bool>(),
                     .rstrip = entry.at("rstrip").get<bool>(),
                     .normalized = entry.at("normalized").get<bool>()};
    if (token.id < 0 || token.id >= kMaxVocabulary || token.content.empty() ||
        token.content.size() > AddedTokenFinder::kLongestContent) {
      throw FileError(fmt::format("{}: added: not a token: {}", source, shown_value(entry.dump())));
    }
    vocabulary.added.push_back(std::move(token));
  }
}

std::unique_ptr<Tokenizer> read_byte_level(const Json& json, const std::string& source) {
  ByteLevelVocabulary vocabulary;
  for (const Json& token : json.at("tokens")) {
    vocabulary.tokens.push_back(token.is_null() ? std::string() : token.get<std::string>());
  }
  json.at("merges").get_to(vocabulary.merges);
  if (json.contains(kSpecialTokens) && json.at(kSpecialTokens).get<bool>()) {
    vocabulary.special_tokens = SpecialTokens::recognized;
  }
  if (json.at("type") == ByteLevelTokenizer::kGpt2Type) {
    add_gpt2_special(vocabulary);
    return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), source);
  }
  read_added(json.at("added"), vocabulary, source);
  const auto pattern = json.at("pattern").get<std::string>();
  if (pattern != "gpt2" && pattern != "cl100k") {
    throw FileError(fmt::format(
        "{}: pattern: gpt2 and cl100k are known; got '{}'", source, shown_value(pattern)));
  }
  vocabulary.pattern = pattern == "gpt2" ? WordPattern::gpt2 : WordPattern::cl100k;
  vocabulary.nfc = json.at("nfc").get<bool>();
  vocabulary.prefix_space = json.at("prefix_space").get<bool>();
  vocabulary.whole_words = json.at("whole_words").get<bool>();
  const auto end = json.at("end_of_text").get<TokenId>();
  const auto named = std::find_if(vocabulary.added.begin(),
                                  vocabulary.added.end(),
                                  [&](const AddedToken& token) { return token.id == end; });
  if (named != vocabulary.added.end()) {
    vocabulary.end_of_text = named->content;
  } else if (end >= 0 && static_cast<std::size_t>(end) < vocabulary.tokens.size()) {
    vocabulary.end_of_text = vocabulary.tokens[static_cast<std::size_t>(end)];
  }
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), source);
}

std::unique_ptr<Tokenizer> read_tokenizer(const Json& json, const std::string& source) {
  const auto format = json.at("format").get<std::string>();
  const int version = json.at("version").get<int>();
  if (format != kFormat || version != kVersion) {
    throw FileError(fmt::format("{}: format '{}' version {} is expected, got '{}' version {}",
                                source,
                                kFormat,
                                kVersion,
                                shown_value(format),
                                version));
  }
  const auto type = json.at("type").get<std::string>();
  if (type == ByteTokenizer::kType) {
    return std::make_unique<ByteTokenizer>();
  }
  if (type == SentencePieceTokenizer::kType) {
    return std::make_unique<SentencePieceTokenizer>(
        from_base64(json.at("model").get<std::string>(), source), source);
  }
  if (type == ByteLevelTokenizer::kGpt2Type || type == ByteLevelTokenizer::kType) {
    return read_byte_level(json, source);
  }
  throw FileError(fmt::format(
      "{}: the types are byte, sentencepiece, gpt2 and hf; got '{}'", source, shown_value(type)));
}

std::vector<std::string> tokens_by_id(const std::string& path) {
  std::vector<std::string> tokens;
  const Json vocabulary = parse_strict_object(read_file(path), path);
  for (const auto& [token, id] : vocabulary.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= std::uint64_t{kMaxVocabulary}) {
      throw FileError(fmt::format("{}: an id is an integer from 0 to {}; '{}' has {}",
                                  path,
                                  kMaxVocabulary - 1,
                                  shown_value(token),
                                  shown_value(id.dump())));
    }
    const auto place = id.get<std::size_t>();
    tokens.resize(std::max(tokens.size(), place + 1));
    if (!tokens[place].empty()) {
      throw FileError(fmt::format("{}: '{}' and '{}' have the same id {}",
                                  path,
                                  shown_value(tokens[place]),
                                  shown_value(token),
                                  place));
    }
    tokens[place] = token;
  }
  return tokens;
}

// A line is "left right"; the first one may be a comment with the version. Tokens hold no white
// space: GPT-2's spelling writes it with other characters.
std::vector<std::pair<std::string, std::string>> read_merges(const std::string& path) {
  std::istringstream file(read_file(path));
  std::vector<std::pair<std::string, std::string>> merges;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    if (line.empty() || (number == 1 && line.starts_with("#version"))) {
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      throw FileError(
          fmt::format("{}: line {}: two tokens with a space between them are expected, got '{}'",
                      path,
                      number,
                      shown_value(line)));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

}  // namespace

namespace {

Json json_of(const Tokenizer& tokenizer) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"type", tokenizer.type()},
               {"vocabulary_size", tokenizer.vocabulary_size()},
               {"end_of_text", tokenizer.end_of_text()}};
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer)) {
    json["model"] = to_base64(pieces->model());
  } else if (const auto* bpe = dynamic_cast<const ByteLevelTokenizer*>(&tokenizer)) {
    write_byte_level(bpe->vocabulary(), json);
  }
  return json;
}

}  // namespace

std::string tokenizer_to_json(const Tokenizer& tokenizer) {
  return json_of(tokenizer).dump() + "\n";
}

std::string tokenizer_identity(const Tokenizer& tokenizer) {
  Json json = json_of(tokenizer);
  json.erase(kSpecialTokens);
  return json.dump();
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json, const std::string& source) {
  const Json object = parse_strict_object(json, source);
  try {
    std::unique_ptr<Tokenizer> tokenizer = read_tokenizer(object, source);
    if (object.at("vocabulary_size") != tokenizer->vocabulary_size() ||
        object.at("end_of_text") != tokenizer->end_of_text()) {
      throw FileError(
          fmt::format("{}: vocabulary_size or end_of_text do not fit its tokens", source));
    }
    return tokenizer;
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: not a tokenizer: {}", source, error.what()));
  }
}

std::string tokenizer_path(const std::string& prefix) {
  return prefix + ".tokenizer.json";
}

std::unique_ptr<Tokenizer> load_gpt2_tokenizer(const std::string& directory,
                                               SpecialTokens special_tokens) {
  ByteLevelVocabulary vocabulary{.tokens = tokens_by_id(directory + "/vocab.json"),
                                 .merges = read_merges(directory + "/merges.txt")};
  add_gpt2_special(vocabulary);
  vocabulary.special_tokens = special_tokens;
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), directory);
}

std::unique_ptr<Tokenizer> load_hugging_face_tokenizer(const std::string& directory,
                                                       SpecialTokens special_tokens) {
  ByteLevelVocabulary vocabulary = load_hugging_face_vocabulary(directory);
  vocabulary.special_tokens = special_tokens;
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), directory + "/tokenizer.json");
}

std::unique_ptr<Tokenizer> tokenizer_from_option(const std::string& option,
                                                 SpecialTokens special_tokens) {
  const std::size_t colon = option.find(':');
  const std::string type = option.substr(0, colon);
  const std::string where = colon == std::string::npos ? "" : option.substr(colon + 1);
  if (type == ByteLevelTokenizer::kGpt2Type && !where.empty()) {
    return load_gpt2_tokenizer(where, special_tokens);
  }
  if (type == ByteLevelTokenizer::kType && !where.empty()) {
    return load_hugging_face_tokenizer(where, special_tokens);
  }
  if (special_tokens == SpecialTokens::recognized) {
    throw ConfigError(fmt::format(
        "--special-tokens: needs a tokenizer that has some, gpt2:DIR or hf:DIR; got '{}'", option));
  }
  if (option == ByteTokenizer::kType) {
    return std::make_unique<ByteTokenizer>();
  }
  if (type == SentencePieceTokenizer::kType && !where.empty()) {
    return std::make_unique<SentencePieceTokenizer>(read_file(where), where);
  }
  throw ConfigError(fmt::format(
      "--tokenizer: byte, sentencepiece:MODEL, gpt2:DIR or hf:DIR are known; got '{}'", option));
}

}  // namespace slackline
