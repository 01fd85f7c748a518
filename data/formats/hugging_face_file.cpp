#include "data/formats/hugging_face_file.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "core/shown_text.h"
#include "core/strict_json.h"

namespace slackline {
namespace {

using Json = nlohmann::ordered_json;

// A value in a file and the path that leads to it, for messages.
class Place {
 public:
  Place(const Json& value, std::string source) : value_(&value), source_(std::move(source)) {}

  // A member of an object; null where it is absent.
  [[nodiscard]] Place at(const std::string& key) const {
    static const Json kAbsent;
    if (!value_->is_object()) {
      fail("must be an object");
    }
    const auto found = value_->find(key);
    return {found == value_->end() ? kAbsent : *found, source_, join(key)};
  }

  // An element of a list.
  [[nodiscard]] Place at(std::size_t index) const {
    return {(*value_)[index], source_, join(std::to_string(index))};
  }

  [[nodiscard]] std::size_t size() const {
    if (!value_->is_array()) {
      fail("must be a list");
    }
    return value_->size();
  }

  [[nodiscard]] bool is_null() const { return value_->is_null(); }

  [[nodiscard]] const Json& json() const { return *value_; }

  [[nodiscard]] const std::string& text() const {
    if (!value_->is_string()) {
      fail("must be a text");
    }
    return value_->get_ref<const std::string&>();
  }

  [[nodiscard]] bool flag(std::optional<bool> when_absent = {}) const {
    if (is_null() && when_absent) {
      return *when_absent;
    }
    if (!value_->is_boolean()) {
      fail("must be true or false");
    }
    return value_->get<bool>();
  }

  [[nodiscard]] TokenId id() const {
    if (!value_->is_number_unsigned() ||
        value_->get<std::uint64_t>() >= std::uint64_t{kMaxVocabulary}) {
      fail(fmt::format("an id is an integer from 0 to {}", kMaxVocabulary - 1));
    }
    return value_->get<TokenId>();
  }

  // Refuses every text but `supported`.
  void require(std::string_view supported) const {
    if (text() != supported) {
      fail(fmt::format("only \"{}\" is supported", supported));
    }
  }

  void require_flag(bool supported, std::optional<bool> when_absent = {}) const {
    if (flag(when_absent) != supported) {
      fail(fmt::format("only {} is supported here", supported));
    }
  }

  [[noreturn]] void fail(std::string_view rule) const {
    std::string value = value_->is_structured() ? value_->type_name() : value_->dump();
    throw FileError(fmt::format("{}: {}: {}; got {}",
                                source_,
                                shown_line(path_),
                                rule,
                                is_null() ? "nothing" : shown_value(value, kLongestValue)));
  }

 private:
  static constexpr std::size_t kLongestValue = 200;  // bytes: a pattern is to be seen whole

  Place(const Json& value, std::string source, std::string path)
      : value_(&value), source_(std::move(source)), path_(std::move(path)) {}

  [[nodiscard]] std::string join(const std::string& key) const {
    return path_.empty() ? key : fmt::format("{}.{}", path_, shown_value(key));
  }

  const Json* value_;
  std::string source_;
  std::string path_;
};

void read_normalizer(const Place& place, ByteLevelVocabulary& vocabulary) {
  if (place.is_null()) {
    return;
  }
  const Place type = place.at("type");
  if (type.text() == "Sequence") {
    const Place steps = place.at("normalizers");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!steps.at(i).is_null() && steps.at(i).at("type").text() == "Sequence") {
        steps.at(i).at("type").fail("only \"NFC\" or no normalizer is supported");
      }
      read_normalizer(steps.at(i), vocabulary);
    }
    return;
  }
  if (type.text() != "NFC") {
    type.fail("only \"NFC\" or no normalizer is supported");
  }
  vocabulary.nfc = true;
}

void read_split(const Place& place, ByteLevelVocabulary& vocabulary) {
  place.at("behavior").require("Isolated");
  place.at("invert").require_flag(false);
  const Place pattern = place.at("pattern").at("Regex");
  for (const WordPattern known : {WordPattern::gpt2, WordPattern::cl100k}) {
    if (pattern.text() == regular_expression(known)) {
      vocabulary.pattern = known;
      return;
    }
  }
  pattern.fail("only the patterns of GPT-2, cl100k and LLaMA 3 are supported");
}

void read_pre_tokenizer(const Place& place, ByteLevelVocabulary& vocabulary) {
  constexpr const char* kRule =
      "only ByteLevel, alone or after one Split, is supported: byte-level BPE";
  const Place type = place.at("type");
  if (type.text() == "ByteLevel") {
    place.at("use_regex").require_flag(true, true);
    vocabulary.prefix_space = place.at("add_prefix_space").flag();
    return;
  }
  if (type.text() != "Sequence") {
    type.fail(kRule);
  }
  const Place steps = place.at("pretokenizers");
  if (steps.size() == 1) {
    steps.at(0).at("type").require("ByteLevel");
    read_pre_tokenizer(steps.at(0), vocabulary);
    return;
  }
  if (steps.size() != 2) {
    steps.fail(kRule);
  }
  steps.at(0).at("type").require("Split");
  steps.at(1).at("type").require("ByteLevel");
  read_split(steps.at(0), vocabulary);
  steps.at(1).at("use_regex").require_flag(false, true);
  steps.at(1).at("add_prefix_space").require_flag(false);
}

void read_vocab(const Place& place, ByteLevelVocabulary& vocabulary) {
  std::vector<std::string>& tokens = vocabulary.tokens;
  if (!place.json().is_object()) {
    place.fail("must be an object of tokens and ids");
  }
  for (const auto& [token, value] : place.json().get_ref<const Json::object_t&>()) {
    const bool is_id =
        value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{kMaxVocabulary};
    if (!is_id || token.empty()) {  // the path is only made where it is shown
      static_cast<void>(place.at(token).id());
      place.fail("a token must not be empty");
    }
    const auto id = value.get<std::size_t>();
    tokens.resize(std::max(tokens.size(), id + 1));
    if (!tokens[id].empty()) {
      place.at(token).fail(fmt::format("has the id of {} too", shown_value(tokens[id])));
    }
    tokens[id] = token;
  }
}

void read_merges(const Place& place, ByteLevelVocabulary& vocabulary) {
  constexpr const char* kRule = "two tokens are expected, as \"a b\" or [\"a\", \"b\"]";
  for (std::size_t i = 0; i < place.size(); ++i) {
    const Json& merge = place.json()[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      vocabulary.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    if (!merge.is_string()) {
      place.at(i).fail(kRule);
    }
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      place.at(i).fail(kRule);
    }
    vocabulary.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

void read_model(const Place& model, ByteLevelVocabulary& vocabulary) {
  if (!model.at("type").is_null()) {  // older files leave it out
    model.at("type").require("BPE");
  }
  const Place dropout = model.at("dropout");
  if (!dropout.is_null() && dropout.json() != 0) {
    dropout.fail("only null is supported");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.at(affix).is_null()) {
      model.at(affix).require("");
    }
  }
  vocabulary.whole_words = model.at("ignore_merges").flag(false);
  read_vocab(model.at("vocab"), vocabulary);
  read_merges(model.at("merges"), vocabulary);
}

// The library numbers added tokens itself: by the vocabulary where it has them, else one after the
// other behind it.
class AddedTokenIds {
 public:
  explicit AddedTokenIds(const std::vector<std::string>& tokens) {
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (!tokens[id].empty()) {
        ids_.emplace(tokens[id], static_cast<TokenId>(id));
      }
    }
    next_ = static_cast<TokenId>(ids_.size());
  }

  TokenId id_of(const std::string& content) {
    const auto known = ids_.find(content);
    const TokenId id = known == ids_.end() ? next_ : known->second;
    next_ = std::max(next_, id + 1);
    return id;
  }

 private:
  std::unordered_map<std::string_view, TokenId> ids_;
  TokenId next_ = 0;
};

void read_added_tokens(const Place& place, ByteLevelVocabulary& vocabulary) {
  AddedTokenIds ids(vocabulary.tokens);
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; !place.is_null() && i < place.size(); ++i) {
    const Place entry = place.at(i);
    const Place content = entry.at("content");
    AddedToken token{.id = entry.at("id").id(),
                     .content = content.text(),
                     .special = entry.at("special").flag(),
                     .lstrip = entry.at("lstrip").flag(),
                     .rstrip = entry.at("rstrip").flag(),
                     .normalized = entry.at("normalized").flag()};
    entry.at("single_word").require_flag(false);
    if (token.content.empty() || token.content.size() > AddedTokenFinder::kLongestContent) {
      content.fail(fmt::format("must be 1 to {} bytes long", AddedTokenFinder::kLongestContent));
    }
    if (!seen.insert(token.content).second) {
      content.fail("is there twice");
    }
    if (const TokenId expected = ids.id_of(token.content); token.id != expected) {
      entry.at("id").fail(fmt::format("the library gives this token the id {}", expected));
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
  if (path_exists(path)) {
    const Json config = parse_strict_object(read_file(path), path);
    const Place eos = Place(config, path).at("eos_token");
    if (!eos.is_null()) {
      const Place name = eos.json().is_object() ? eos.at("content") : eos;
      if (!has_token(vocabulary, name.text())) {
        name.fail("is not a token of tokenizer.json");
      }
      return name.text();
    }
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

}  // namespace

ByteLevelVocabulary read_hugging_face_vocabulary(std::string_view json, const std::string& source) {
  const Json document = parse_strict_object(json, source);
  const Place file(document, source);
  ByteLevelVocabulary vocabulary;
  read_model(file.at("model"), vocabulary);
  read_normalizer(file.at("normalizer"), vocabulary);
  read_pre_tokenizer(file.at("pre_tokenizer"), vocabulary);
  const Place decoder = file.at("decoder");
  if (!decoder.is_null()) {
    decoder.at("type").require("ByteLevel");
  }
  read_added_tokens(file.at("added_tokens"), vocabulary);
  simplify(vocabulary);
  return vocabulary;
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
