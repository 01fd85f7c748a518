#include "data/byte_level_tokenizer.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/tokenizer_file.h"
#include "data/word_split.h"
#include "tests/data/piecewise.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const std::string kDirectory = SL_SOURCE_DIR "/tests/golden/bpe";

struct Case {
  std::string text;
  std::vector<TokenId> ids;
};

std::vector<Case> golden_cases() {
  std::ifstream file(kDirectory + "/cases.json");
  std::vector<Case> cases;
  for (const auto& entry : nlohmann::json::parse(file)) {
    cases.push_back({entry.at("text"), entry.at("ids")});
  }
  return cases;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = word_end(WordPattern::gpt2, text, start);
    words.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return words;
}

}  // namespace

TEST_CASE("GPT-2's tokens are the reference tokenizer's on text in many scripts") {
  const auto tokenizer = load_gpt2_tokenizer(kDirectory);
  REQUIRE(tokenizer->vocabulary_size() == 1200);
  REQUIRE(tokenizer->end_of_text() == 1199);
  const std::vector<Case> cases = golden_cases();
  REQUIRE(cases.size() >= 100);
  for (const auto& [text, ids] : cases) {
    CAPTURE(text);
    REQUIRE(tokenizer->encode(text) == ids);
    REQUIRE(tokenizer->decode(ids) == text);
  }
}

TEST_CASE("GPT-2's tokens of pieces are those of the whole, wherever it may be cut") {
  const auto tokenizer = load_gpt2_tokenizer(kDirectory);
  std::string all;
  for (const Case& entry : golden_cases()) {
    REQUIRE(pieces_equal_whole(*tokenizer, entry.text));
    all += entry.text;
  }
  REQUIRE(pieces_equal_whole(*tokenizer, all));
  REQUIRE(tokenizer->split_point("a cut is made before the last word") ==
          std::string_view("a cut is made before the last").size());
  REQUIRE(tokenizer->split_point("uncut") == 0);
  REQUIRE(tokenizer->split_point("") == 0);
}

TEST_CASE("words are those of GPT-2's pattern") {
  using Words = std::vector<std::string>;
  REQUIRE(
      words_of("We'll see, it's 'so' I'LL  go") ==
      Words{"We", "'ll", " see", ",", " it", "'s", " '", "so", "'", " I", "'", "LL", " ", " go"});
  REQUIRE(words_of("a \n\n b\t\tc  ") == Words{"a", " \n\n", " b", "\t", "\t", "c", "  "});
  REQUIRE(words_of("x1²½ Ⅷ!?") == Words{"x", "1²½", " Ⅷ", "!?"});
  REQUIRE(words_of("\xc2\xa0word\xe3\x80\x80\xe3\x80\x80語") ==
          Words{"\xc2\xa0", "word", "\xe3\x80\x80", "\xe3\x80\x80", "語"});
}

TEST_CASE("a long word takes its time in proportion and the same merges") {
  const auto tokenizer = load_gpt2_tokenizer(kDirectory);
  std::string word;
  for (int i = 0; i < 100000; ++i) {
    word += "there";
  }
  const std::vector<TokenId> ids = tokenizer->encode(word);
  REQUIRE(tokenizer->decode(ids) == word);
  REQUIRE(ids.size() < word.size() / 2);
}

TEST_CASE("ids that no text has decode to a replacement, end-of-text to nothing") {
  const auto tokenizer = load_gpt2_tokenizer(kDirectory);
  REQUIRE(tokenizer->decode(std::vector<TokenId>{64, 1199, 64}) == "aa");
  REQUIRE(tokenizer->decode(std::vector<TokenId>{1200, -1}) == "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("broken GPT-2 vocabularies are refused by what is wrong with them") {
  const TemporaryDirectory directory;
  const auto load_with = [&](const std::string& vocabulary, const std::string& merges) {
    std::ofstream(directory.file("vocab.json")) << vocabulary;
    std::ofstream(directory.file("merges.txt")) << merges;
    return load_gpt2_tokenizer(directory.path());
  };
  std::ifstream golden(kDirectory + "/vocab.json");
  nlohmann::json vocabulary = nlohmann::json::parse(golden);
  const std::string good = vocabulary.dump();
  REQUIRE(load_with(good, "h e\r\n\r\n")->encode("he").size() == 1);
  REQUIRE_THROWS_WITH(load_with("[1]", ""), Catch::Contains("JSON object"));
  REQUIRE_THROWS_WITH(load_with("{", ""), Catch::Contains("not JSON"));
  REQUIRE_THROWS_WITH(load_with(good, "h e x\n"), Catch::Contains("line 1"));
  REQUIRE_THROWS_WITH(load_with(good, "q q\n"), Catch::Contains("result of a merge"));
  REQUIRE_THROWS_WITH(load_with(R"({"a": -1})", ""), Catch::Contains("'a' has -1"));
  REQUIRE_THROWS_WITH(load_with(R"({"a": 1, "b": 1})", ""), Catch::Contains("same id 1"));
  vocabulary.erase("<|endoftext|>");
  REQUIRE_THROWS_WITH(load_with(vocabulary.dump(), ""), Catch::Contains("end-of-text"));
  vocabulary.erase("a");
  REQUIRE_THROWS_WITH(load_with(vocabulary.dump(), ""), Catch::Contains("byte"));
  REQUIRE_THROWS_AS(load_gpt2_tokenizer(directory.file("absent")), FileError);
}

}  // namespace slackline
