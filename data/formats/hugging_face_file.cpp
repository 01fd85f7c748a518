#include "data/formats/hugging_face_file.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_errors.h"
#include "core/file_io.h"
#include "core/shown_text.h"

namespace slackline {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;  // more is a broken file

// Refuses any value but the one that is supported, and none.
void require(JsonReader section, std::string_view key, std::string_view supported) {
  if (!section.has(key)) {
    section.fail(key, fmt::format("only {} is supported", supported));
  }
  section.only(key, supported);
}

constexpr std::string_view kByteLevel = R"("ByteLevel")";

void read_normalizer(JsonReader normalizer, ByteLevelVocabulary& vocabulary) {
  std::vector<JsonReader> steps = {normalizer};
  if (normalizer.string("type") == "Sequence") {
    if (!normalizer.has("normalizers")) {
      normalizer.fail("normalizers", "expected a list of objects");
    }
    steps = normalizer.sections("normalizers");
  }
  for (JsonReader& step : steps) {
    if (step.string("type") != "NFC") {
      step.fail("type", "only \"NFC\" or no normalizer is supported");
    }
    vocabulary.nfc = true;
  }
}

void read_split(JsonReader split, ByteLevelVocabulary& vocabulary) {
  constexpr std::size_t kLongestPattern = 200;  // bytes: it is to be seen whole
  require(split, "behavior", R"("Isolated")");
  require(split, "invert", "false");
  JsonReader pattern = split.section("pattern");
  for (const WordPattern known : {WordPattern::gpt2, WordPattern::cl100k}) {
    if (pattern.string("Regex") == regular_expression(known)) {
      vocabulary.pattern = known;
      return;
    }
  }
  throw ConfigError(
      fmt::format("{}: only the patterns of GPT-2, cl100k and LLaMA 3 are supported; got {}",
                  pattern.path("Regex"),
                  shown_value(pattern.json("Regex"), kLongestPattern)));
}

void read_pre_tokenizer(JsonReader step, ByteLevelVocabulary& vocabulary) {
  constexpr const char* kRule =
      "only ByteLevel, alone or after one Split, is supported: byte-level BPE";
  const std::string type = step.string("type");
  if (type == "ByteLevel") {
    step.only("use_regex", "true");
    vocabulary.prefix_space = step.boolean("add_prefix_space");
    return;
  }
  if (type != "Sequence") {
    step.fail("type", kRule);
  }
  const std::vector<JsonReader> steps = step.sections("pretokenizers");
  if (steps.size() == 1) {
    require(steps[0], "type", kByteLevel);
    read_pre_tokenizer(steps[0], vocabulary);
    return;
  }
  if (steps.size() != 2) {
    step.fail("pretokenizers", kRule);
  }
  require(steps[0], "type", R"("Split")");
  require(steps[1], "type", kByteLevel);
  read_split(steps[0], vocabulary);
  require(steps[1], "use_regex", "false");
  require(steps[1], "add_prefix_space", "false");
}

void read_merges(JsonReader& model, ByteLevelVocabulary& vocabulary) {
  const Json& merges = model.given("merges");
  if (!merges.is_array()) {
    model.fail("merges", "expected a list");
  }
  for (const Json& merge : merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      vocabulary.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    auto tokens = merge.is_string() ? merge_of(merge.get_ref<const std::string&>()) : std::nullopt;
    if (!tokens) {
      throw ConfigError(
          fmt::format("{}.{}: two tokens are expected, as \"a b\" or [\"a\", \"b\"]; got {}",
                      model.path("merges"),
                      vocabulary.merges.size(),
                      shown_value(merge.dump())));
    }
    vocabulary.merges.push_back(*std::move(tokens));
  }
}

void read_model(JsonReader model, const std::string& source, ByteLevelVocabulary& vocabulary) {
  model.only("type", R"("BPE")");  // older files leave it out
  if (model.number("dropout", {.default_value = 0.0}) != 0.0) {
    model.fail("dropout", "only null is supported");
  }
  model.only("continuing_subword_prefix", R"("")");
  model.only("end_of_word_suffix", R"("")");
  vocabulary.whole_words = model.boolean("ignore_merges", false);
  const Json& vocab = model.given("vocab");
  if (!vocab.is_object() || vocab.contains("")) {
    model.fail("vocab", "expected an object of tokens, none empty, and ids");
  }
  vocabulary.tokens = tokens_by_id(vocab, fmt::format("{}: {}", source, model.path("vocab")));
  read_merges(model, vocabulary);
}

// Reads added tokens, whose ids must be those that the library gives them: the vocabulary's where
// it has them, else one after the other behind it.
void read_added_tokens(std::vector<JsonReader> entries, ByteLevelVocabulary& vocabulary) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) {
      ids.emplace(vocabulary.tokens[id], static_cast<TokenId>(id));
    }
  }
  auto next = static_cast<TokenId>(ids.size());
  std::unordered_set<std::string> seen;
  for (JsonReader& entry : entries) {
    require(entry, "single_word", "false");
    AddedToken token = read_added_token(entry);
    if (!seen.insert(token.content).second) {
      entry.fail("content", "is there twice");
    }
    const auto known = ids.find(token.content);
    const TokenId expected = known == ids.end() ? next : known->second;
    next = std::max(next, expected + 1);
    if (token.id != expected) {
      entry.fail("id", fmt::format("the library gives this token the id {}", expected));
    }
    vocabulary.added.push_back(std::move(token));
  }
}

// Files of one tokenizer differ in what makes no difference; so equal ones are made equal here.
void simplify(ByteLevelVocabulary& vocabulary) {
  std::vector<AddedToken>& added = vocabulary.added;
  const bool in_one_pass = std::all_of(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.normalized == added.front().normalized;
  });
  for (AddedToken& token : added) {
    if (!vocabulary.nfc && in_one_pass) {
      token.normalized = false;
    }
    const auto id = static_cast<std::size_t>(token.id);
    if (!vocabulary.whole_words) {
      vocabulary.tokens.resize(std::max(vocabulary.tokens.size(), id + 1));
      vocabulary.tokens[id] = token.content;
    }
  }
}

bool has_token(const ByteLevelVocabulary& vocabulary, std::string_view name) {
  const auto is_it = [&](const AddedToken& token) { return token.content == name; };
  return std::any_of(vocabulary.added.begin(), vocabulary.added.end(), is_it) ||
         std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), name) !=
             vocabulary.tokens.end();
}

std::string end_of_text(const std::string& directory, const ByteLevelVocabulary& vocabulary) {
  const std::string path = directory + "/tokenizer_config.json";
  if (const std::optional<std::string> named = end_of_text_in(path)) {
    if (!has_token(vocabulary, *named)) {
      throw FileError(fmt::format("{}: eos_token: is not a token of tokenizer.json; got \"{}\"",
                                  path,
                                  shown_value(*named)));
    }
    return *named;
  }
  for (const std::string_view name :
       {ByteLevelVocabulary::kGpt2EndOfText, std::string_view("<|end_of_text|>")}) {
    if (has_token(vocabulary, name)) {
      return std::string(name);
    }
  }
  throw FileError(with_hint(directory + "/tokenizer.json: has no end-of-text token",
                            "name it in " + path + " as \"eos_token\""));
}

ByteLevelVocabulary read_document(JsonReader file, const std::string& source) {
  ByteLevelVocabulary vocabulary;
  read_model(file.section("model"), source, vocabulary);
  if (file.has("normalizer")) {
    read_normalizer(file.section("normalizer"), vocabulary);
  }
  read_pre_tokenizer(file.section("pre_tokenizer"), vocabulary);
  if (file.has("decoder")) {
    require(file.section("decoder"), "type", kByteLevel);
  }
  read_added_tokens(file.sections("added_tokens"), vocabulary);
  simplify(vocabulary);
  return vocabulary;
}

}  // namespace

std::vector<std::string> tokens_by_id(const Json& object, const std::string& where) {
  std::vector<std::string> tokens;
  for (const auto& [token, id] : object.get_ref<const Json::object_t&>()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= std::uint64_t{kMaxVocabulary}) {
      throw FileError(fmt::format("{}: an id is an integer from 0 to {}; '{}' has {}",
                                  where,
                                  kMaxVocabulary - 1,
                                  shown_value(token),
                                  shown_value(id.dump())));
    }
    const auto place = id.get<std::size_t>();
    tokens.resize(std::max(tokens.size(), place + 1));
    if (!tokens[place].empty()) {
      throw FileError(fmt::format("{}: '{}' and '{}' have the same id {}",
                                  where,
                                  shown_value(tokens[place]),
                                  shown_value(token),
                                  place));
    }
    tokens[place] = token;
  }
  return tokens;
}

std::optional<std::pair<std::string, std::string>> merge_of(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(std::string(text.substr(0, space)), std::string(text.substr(space + 1)));
}

AddedToken read_added_token(JsonReader& entry) {
  AddedToken token{
      .id = static_cast<TokenId>(entry.integer("id", {.min = 0, .max = kMaxVocabulary - 1})),
      .content = entry.string("content"),
      .special = entry.boolean("special"),
      .lstrip = entry.boolean("lstrip"),
      .rstrip = entry.boolean("rstrip"),
      .normalized = entry.boolean("normalized")};
  if (token.content.empty() || token.content.size() > AddedTokenFinder::kLongestContent) {
    entry.fail("content",
               fmt::format("must be 1 to {} bytes long", AddedTokenFinder::kLongestContent));
  }
  return token;
}

std::optional<std::string> end_of_text_in(const std::string& path) {
  if (!path_exists(path)) {
    return std::nullopt;
  }
  return reading(path, [&]() -> std::optional<std::string> {
    JsonReader file = JsonReader::parse(read_file(path), path);
    if (!file.has("eos_token")) {
      return std::nullopt;
    }
    return file.has_section("eos_token") ? file.section("eos_token").string("content")
                                         : file.string("eos_token");
  });
}

ByteLevelVocabulary read_hugging_face_vocabulary(std::string_view json, const std::string& source) {
  return reading(source, [&] { return read_document(JsonReader::parse(json, source), source); });
}

ByteLevelVocabulary load_hugging_face_vocabulary(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  ByteLevelVocabulary vocabulary = read_hugging_face_vocabulary(read_file(path), path);
  vocabulary.end_of_text = end_of_text(directory, vocabulary);
  // Text never is it, whatever the file says.
  for (AddedToken& token : vocabulary.added) {
    token.special = token.special || token.content == vocabulary.end_of_text;
  }
  return vocabulary;
}

}  // namespace slackline
