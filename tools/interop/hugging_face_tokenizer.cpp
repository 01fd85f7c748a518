#include "tools/interop/hugging_face_tokenizer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file_io.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

Json pre_tokenizer_json(const ByteLevelVocabulary& vocabulary) {
  const bool own_pattern = vocabulary.pattern == WordPattern::gpt2;
  Json byte_level = {{"type", "ByteLevel"},
                     {"add_prefix_space", vocabulary.prefix_space},
                     {"trim_offsets", true},
                     {"use_regex", own_pattern}};
  if (own_pattern) {
    return byte_level;
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", regular_expression(vocabulary.pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}};
}

Json added_tokens_json(const ByteLevelVocabulary& vocabulary) {
  Json list = Json::array();
  for (const AddedToken& token : vocabulary.added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", false},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

std::string tokenizer_json(const ByteLevelVocabulary& vocabulary) {
  Json vocab = Json::object();
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) {  // not by [], which looks through all keys
      entries.push_back({vocabulary.tokens[id], id});
    }
  }
  const Json normalizer = vocabulary.nfc ? Json{{"type", "NFC"}} : Json();
  const Json decoder = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", vocabulary.whole_words}};
  model["vocab"] = std::move(vocab);
  model["merges"] = vocabulary.merges;
  Json document = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  document["added_tokens"] = added_tokens_json(vocabulary);
  document["normalizer"] = normalizer;
  document["pre_tokenizer"] = pre_tokenizer_json(vocabulary);
  document["post_processor"] = nullptr;
  document["decoder"] = decoder;
  document["model"] = std::move(model);
  return document.dump(2) + "\n";
}

}  // namespace

void write_gpt2_tokenizer(const std::string& directory, const ByteLevelVocabulary& vocabulary) {
  // Text put together, since the library's ordered objects search a key before they add it.
  std::string ids;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.tokens[id].empty()) {
      ids += fmt::format(
          "{}{}: {}", ids.empty() ? "" : ", ", nlohmann::json(vocabulary.tokens[id]).dump(), id);
    }
  }
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : vocabulary.merges) {
    merges += fmt::format("{} {}\n", left, right);
  }
  write_file_atomically(directory + "/vocab.json", "{" + ids + "}");
  write_file_atomically(directory + "/merges.txt", merges);
}

void write_hugging_face_tokenizer(const std::string& directory,
                                  const ByteLevelVocabulary& vocabulary) {
  // The general class takes tokenizer.json as it is; those of models put in their own patterns.
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"eos_token", vocabulary.end_of_text},
                       {"clean_up_tokenization_spaces", false}};
  write_file_atomically(directory + "/tokenizer.json", tokenizer_json(vocabulary));
  write_file_atomically(directory + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace slackline
