#include "data/formats/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <openssl/evp.h>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/log.h"
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
constexpr std::array<std::string_view, 2> kPatterns = {"gpt2", "cl100k"};  // by WordPattern
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
  const std::size_t padding = text.size() - (text.find_last_not_of('=') + 1);
  if (size < 0 || text.size() % 4 != 0 || padding > 2) {
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
  json["pattern"] = kPatterns[static_cast<std::size_t>(vocabulary.pattern)];
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

std::unique_ptr<Tokenizer> read_byte_level(JsonReader& file, const std::string& source) {
  ByteLevelVocabulary vocabulary;
  for (const Json& token : file.given("tokens")) {
    vocabulary.tokens.push_back(token.is_null() ? std::string() : token.get<std::string>());
  }
  file.given("merges").get_to(vocabulary.merges);
  if (file.boolean(kSpecialTokens, false)) {
    vocabulary.special_tokens = SpecialTokens::recognized;
  }
  if (file.string("type") == ByteLevelTokenizer::kGpt2Type) {
    add_gpt2_special(vocabulary);
    return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), source);
  }
  if (!file.has("added")) {
    file.fail("added", "expected a list of objects");
  }
  for (JsonReader& entry : file.sections("added")) {
    vocabulary.added.push_back(read_added_token(entry));
  }
  vocabulary.pattern = static_cast<WordPattern>(file.choice("pattern", kPatterns));
  vocabulary.nfc = file.boolean("nfc");
  vocabulary.prefix_space = file.boolean("prefix_space");
  vocabulary.whole_words = file.boolean("whole_words");
  const std::int64_t end = file.integer("end_of_text");
  const auto named = std::ranges::find(vocabulary.added, end, &AddedToken::id);
  if (named != vocabulary.added.end()) {
    vocabulary.end_of_text = named->content;
  } else if (end >= 0 && static_cast<std::size_t>(end) < vocabulary.tokens.size()) {
    vocabulary.end_of_text = vocabulary.tokens[static_cast<std::size_t>(end)];
  }
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), source);
}

std::unique_ptr<Tokenizer> read_type(JsonReader& file, const std::string& source) {
  const std::string type = file.string("type");
  if (type == ByteTokenizer::kType) {
    return std::make_unique<ByteTokenizer>();
  }
  if (type == SentencePieceTokenizer::kType) {
    return std::make_unique<SentencePieceTokenizer>(from_base64(file.string("model"), source),
                                                    source);
  }
  if (type == ByteLevelTokenizer::kGpt2Type || type == ByteLevelTokenizer::kType) {
    return read_byte_level(file, source);
  }
  throw FileError(fmt::format(
      "{}: the types are byte, sentencepiece, gpt2 and hf; got '{}'", source, shown_value(type)));
}

std::unique_ptr<Tokenizer> read_tokenizer(JsonReader file, const std::string& source) {
  const std::string format = file.string("format");
  const std::int64_t version = file.integer("version");
  if (format != kFormat || version != kVersion) {
    throw FileError(fmt::format("{}: format '{}' version {} is expected, got '{}' version {}",
                                source,
                                kFormat,
                                kVersion,
                                shown_value(format),
                                version));
  }
  std::unique_ptr<Tokenizer> tokenizer = read_type(file, source);
  if (file.integer("vocabulary_size") != tokenizer->vocabulary_size() ||
      file.integer("end_of_text") != tokenizer->end_of_text()) {
    throw FileError(
        fmt::format("{}: vocabulary_size or end_of_text do not fit its tokens", source));
  }
  return tokenizer;
}

// A line is "left right"; the first one may be a comment with the version.
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
    auto merge = merge_of(line);
    if (!merge) {
      throw FileError(
          fmt::format("{}: line {}: two tokens with a space between them are expected, got '{}'",
                      path,
                      number,
                      shown_value(line)));
    }
    merges.push_back(*std::move(merge));
  }
  return merges;
}

void require_end_of_text(const std::string& path, const std::string& token) {
  if (token != ByteLevelVocabulary::kGpt2EndOfText) {
    throw FileError(with_hint(
        fmt::format("{}: names the token {}, of which vocab.json and merges.txt say nothing",
                    path,
                    shown_value(token)),
        "save the tokenizer as tokenizer.json, as fast tokenizers are"));
  }
}

// Takes what tokenizer_config.json says of encoding, where there is one.
void read_gpt2_settings(const std::string& directory, ByteLevelVocabulary& vocabulary) {
  const std::string path = directory + "/tokenizer_config.json";
  if (!path_exists(path)) {
    return;
  }
  const bool begins_texts = reading(path, [&] {
    JsonReader file = JsonReader::parse(read_file(path), path);
    vocabulary.prefix_space = file.boolean("add_prefix_space", false);
    return file.boolean("add_bos_token", false);
  });
  if (begins_texts) {
    log_warning(path +
                ": add_bos_token is passed over: no beginning-of-text token is put before a text");
  }
}

// Throws FileError where added_tokens.json beside vocab.json, or an end of text, names other tokens
// than vocab.json does.
void require_no_other_tokens(const std::string& directory, const std::vector<std::string>& tokens) {
  const std::string added = directory + "/added_tokens.json";
  if (path_exists(added)) {
    const auto ids = parse_strict_object(read_file(added), added);
    for (const auto& entry : ids.items()) {
      const bool is_known = entry.value().is_number_unsigned() &&
                            entry.value().get<std::size_t>() < tokens.size() &&
                            tokens[entry.value().get<std::size_t>()] == entry.key();
      if (!is_known) {
        require_end_of_text(added, entry.key());
      }
    }
  }
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string path = fmt::format("{}/{}", directory, name);
    if (const std::optional<std::string> token = end_of_text_in(path)) {
      require_end_of_text(path, *token);
    }
  }
}

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
  try {
    return reading(source, [&] { return read_tokenizer(JsonReader::parse(json, source), source); });
  } catch (const Json::exception& error) {
    throw FileError(fmt::format("{}: not a tokenizer: {}", source, error.what()));
  }
}

std::string tokenizer_path(const std::string& prefix) {
  return prefix + ".tokenizer.json";
}

std::unique_ptr<Tokenizer> load_gpt2_tokenizer(const std::string& directory,
                                               SpecialTokens special_tokens) {
  const std::string path = directory + "/vocab.json";
  ByteLevelVocabulary vocabulary{
      .tokens = tokens_by_id(parse_strict_object(read_file(path), path), path),
      .merges = read_merges(directory + "/merges.txt")};
  require_no_other_tokens(directory, vocabulary.tokens);
  add_gpt2_special(vocabulary);
  read_gpt2_settings(directory, vocabulary);
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
