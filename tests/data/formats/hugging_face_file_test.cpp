// Tokenizers that come as tokenizer.json, against the tokenizers package
// (tests/reference/tokenizer_json_golden.py).

#include "data/formats/hugging_face_file.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/tokenizer_file.h"
#include "tests/data/piecewise.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

using Json = nlohmann::json;

const std::string kDirectory = SL_SOURCE_DIR "/tests/golden/tokenizer_json";

Json read_json(const std::string& name) {
  return Json::parse(read_file(kDirectory + "/" + name));
}

Json cases_of(const std::string& variant) {
  return read_json(variant + ".json").at("cases");
}

// A directory that transformers might have saved.
struct SavedTokenizer {
  TemporaryDirectory directory;

  explicit SavedTokenizer(const std::string& variant) {
    const Json golden = read_json(variant + ".json");
    Json document = read_json("tokenizer.json");
    document.merge_patch(golden.at("patch"));
    write(document, {{"eos_token", golden.at("eos")}});
  }

  void write(const Json& document, const Json& config) const {
    std::ofstream(directory.file("tokenizer.json")) << document.dump();
    std::ofstream(directory.file("tokenizer_config.json")) << config.dump();
  }

  [[nodiscard]] std::unique_ptr<Tokenizer> load(SpecialTokens special) const {
    return load_hugging_face_tokenizer(directory.path(), special);
  }
};

const char* const kVariants[] = {"gpt2", "llama3", "neox", "spaces"};

// tokenizer.json of the LLaMA 3 variant with one value replaced.
void require_refused(const std::string& pointer, const Json& value, const std::string& message) {
  CAPTURE(pointer, value);
  Json document = read_json("tokenizer.json");
  document.merge_patch(read_json("llama3.json").at("patch"));
  document[Json::json_pointer(pointer)] = value;
  const std::string json = document.dump();
  CHECK_THROWS_AS(read_hugging_face_vocabulary(json, "t.json"), FileError);
  CHECK_THROWS_WITH(read_hugging_face_vocabulary(json, "t.json"), Catch::Equals(message));
}

}  // namespace

TEST_CASE("ids are the reference library's, with special tokens as text and recognized") {
  for (const std::string variant : kVariants) {
    const SavedTokenizer saved(variant);
    const auto as_text = saved.load(SpecialTokens::as_text);
    const auto recognized = saved.load(SpecialTokens::recognized);
    std::size_t with_special = 0;
    for (const Json& entry : cases_of(variant)) {
      const std::string text = entry.at("text");
      const std::vector<TokenId> ids = entry.at("ids");
      const auto special =
          entry.contains("ids_special") ? entry.at("ids_special").get<std::vector<TokenId>>() : ids;
      CAPTURE(variant, text);
      REQUIRE(as_text->encode(text) == ids);
      REQUIRE(recognized->encode(text) == special);
      with_special += special == ids ? 0 : 1;
    }
    CHECK(with_special > 20);
  }
}

TEST_CASE("text is not the end of text, whatever the file says of its token") {
  const SavedTokenizer saved("gpt2");
  Json document = read_json("tokenizer.json");
  document.merge_patch(read_json("gpt2.json").at("patch"));
  const std::string end = read_json("gpt2.json").at("eos");
  std::size_t changed = 0;
  for (Json& token : document.at("added_tokens")) {
    if (token.at("content") == end) {
      token["special"] = false;
      ++changed;
    }
  }
  REQUIRE(changed == 1);
  const std::vector<TokenId> ids = saved.load(SpecialTokens::as_text)->encode("a" + end + "b");
  saved.write(document, {{"eos_token", end}});
  const auto tokenizer = saved.load(SpecialTokens::as_text);
  CHECK(tokenizer->encode("a" + end + "b") == ids);
  CHECK(std::ranges::find(ids, tokenizer->end_of_text()) == ids.end());
}

TEST_CASE("pieces give the ids of the whole, wherever added tokens and accents stand") {
  for (const std::string variant : kVariants) {
    const SavedTokenizer saved(variant);
    const auto as_text = saved.load(SpecialTokens::as_text);
    const auto recognized = saved.load(SpecialTokens::recognized);
    for (const Json& entry : cases_of(variant)) {
      const std::string text = entry.at("text");
      CAPTURE(variant, text);
      REQUIRE(pieces_equal_whole(*as_text, text));
      REQUIRE(pieces_equal_whole(*recognized, text));
    }
    CHECK(as_text->split_point("a cut is made before the last word") > 20);
  }
}

TEST_CASE("a letter under very many accents is normalized in time that grows with their number") {
  const SavedTokenizer saved("neox");
  const auto tokenizer = saved.load(SpecialTokens::as_text);
  std::string above;
  std::string below;
  std::string mixed;
  for (int i = 0; i < 100000; ++i) {  // squared, half a minute
    above += "\u0306";
    below += "\u0331";
    mixed += "\u0306\u0331";
  }
  REQUIRE(tokenizer->encode("q" + mixed) == tokenizer->encode("q" + below + above));
}

TEST_CASE("characters that stand for two accents are normalized as these, however many there are") {
  const SavedTokenizer saved("neox");
  const auto tokenizer = saved.load(SpecialTokens::as_text);
  // As Python's unicodedata has it.
  REQUIRE(tokenizer->encode("\u0F40\u0F81\u0F73\u0331\u0F75\u0F71") ==
          tokenizer->encode("\u0F40\u0F71\u0F71\u0F71\u0F71\u0F80\u0F72\u0F74\u0331"));
  std::string both;
  std::string first;
  std::string second;
  for (int i = 0; i < 100000; ++i) {
    both += "\u0F73";
    first += "\u0F71";
    second += "\u0F72";
  }
  REQUIRE(tokenizer->encode("q" + both) == tokenizer->encode("q" + first + second));
}

TEST_CASE("a stored tokenizer gives the same ids, and its text back") {
  for (const std::string variant : kVariants) {
    const SavedTokenizer saved(variant);
    const auto tokenizer = saved.load(SpecialTokens::recognized);
    const std::string json = tokenizer_to_json(*tokenizer);
    const auto again = tokenizer_from_json(json, "again");
    CAPTURE(variant);
    CHECK(tokenizer_to_json(*again) == json);
    CHECK(again->end_of_text() == tokenizer->end_of_text());
    for (const Json& entry : cases_of(variant)) {
      const std::string text = entry.at("text");
      REQUIRE(again->encode(text) == tokenizer->encode(text));
    }
    const auto as_text = saved.load(SpecialTokens::as_text);
    CHECK(tokenizer_identity(*as_text) == tokenizer_identity(*tokenizer));
    CHECK(tokenizer_to_json(*as_text) != json);
    const std::string plain = "Plain words, 12345 numbers\n\n and <|eot_id|>.";
    const std::string back = as_text->decode(as_text->encode(plain));
    CHECK(back == (variant == "spaces" ? " " + plain : plain));
  }
}

TEST_CASE("GPT-2's own tokenizer is the same from either kind of file") {
  const TemporaryDirectory directory;
  const std::string bpe = SL_SOURCE_DIR "/tests/golden/bpe";
  const auto separate = load_gpt2_tokenizer(bpe);
  Json document = read_json("tokenizer.json");
  document.merge_patch(read_json("gpt2.json").at("patch"));
  document["model"]["vocab"] = Json::parse(read_file(bpe + "/vocab.json"));
  document["added_tokens"][0]["id"] = separate->end_of_text();
  Json merges = Json::array();
  std::ifstream lines(bpe + "/merges.txt");
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) {
    merges.push_back(line);  // as "a b"; the golden file has pairs
  }
  document["model"]["merges"] = merges;
  std::ofstream(directory.file("tokenizer.json")) << document.dump();
  const auto together = load_hugging_face_tokenizer(directory.path());
  CHECK(together->type() == "gpt2");
  CHECK(tokenizer_to_json(*together) == tokenizer_to_json(*separate));
}

TEST_CASE("what changes ids and is not supported is refused by its path") {
  require_refused("/model/type",
                  "WordPiece",
                  R"(t.json: model.type: only "BPE" is supported; got "WordPiece")");
  require_refused("/model/dropout", 0.1, "t.json: model.dropout: only null is supported; got 0.1");
  require_refused("/model/end_of_word_suffix",
                  "</w>",
                  R"(t.json: model.end_of_word_suffix: only "" is supported; got "</w>")");
  require_refused(
      "/normalizer",
      {{"type", "Lowercase"}},
      R"(t.json: normalizer.type: only "NFC" or no normalizer is supported; got "Lowercase")");
  require_refused(
      "/pre_tokenizer/pretokenizers/0/pattern/Regex",
      R"(\p{N})",
      "t.json: pre_tokenizer.pretokenizers.0.pattern.Regex: only the patterns of GPT-2, "
      R"(cl100k and LLaMA 3 are supported; got "\\p{N}")");
  require_refused(
      "/pre_tokenizer/pretokenizers/1/add_prefix_space",
      true,
      "t.json: pre_tokenizer.pretokenizers.1.add_prefix_space: only false is supported; "
      "got true");
  require_refused("/added_tokens/1/single_word",
                  true,
                  "t.json: added_tokens.1.single_word: only false is supported; got true");
  require_refused("/decoder/type",
                  "Metaspace",
                  R"(t.json: decoder.type: only "ByteLevel" is supported; got "Metaspace")");
}

TEST_CASE("broken files are refused by the path of what is wrong") {
  require_refused("/model/vocab/a",
                  -1,
                  "t.json: model.vocab: an id is an integer from 0 to 4194303; 'a' has -1");
  require_refused("/model/vocab/a",
                  4194304,
                  "t.json: model.vocab: an id is an integer from 0 to 4194303; 'a' has 4194304");
  require_refused("/model/merges/3",
                  "a b c",
                  R"(t.json: model.merges.3: two tokens are expected, as "a b" or ["a", "b"]; )"
                  R"(got "a b c")");
  require_refused("/added_tokens/2/id",
                  7,
                  "t.json: added_tokens.2.id: the library gives this token the id 902; got 7");
  require_refused("/added_tokens/2/content",
                  "",
                  R"(t.json: added_tokens.2.content: must be 1 to 127 bytes long; got "")");
  require_refused(
      "/added_tokens/2/lstrip", nullptr, "t.json: added_tokens.2.lstrip: required key is missing");
  require_refused("/model", 3, "t.json: model: expected an object; got 3");
  CHECK_THROWS_WITH(read_hugging_face_vocabulary("{", "t.json"),
                    Catch::StartsWith("t.json: line 1"));
  const SavedTokenizer saved("llama3");
  std::ofstream(saved.directory.file("tokenizer_config.json")) << R"({"eos_token": "<none>"})";
  CHECK_THROWS_WITH(saved.load(SpecialTokens::as_text),
                    Catch::EndsWith("tokenizer_config.json: eos_token: is not a token of "
                                    "tokenizer.json; got \"<none>\""));
}

}  // namespace slackline
