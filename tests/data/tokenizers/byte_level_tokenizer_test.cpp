#include "data/tokenizers/byte_level_tokenizer.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/formats/tokenizer_file.h"
#include "data/tokenizers/word_split.h"
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

// The tokens of a word of ASCII letters: always the first of all merges that some neighbours have,
// where they are leftmost.
std::vector<TokenId> merged_by_the_textbook(const std::string& word) {
  std::ifstream vocabulary_file(kDirectory + "/vocab.json");
  const auto vocabulary = nlohmann::json::parse(vocabulary_file);
  std::ifstream merges_file(kDirectory + "/merges.txt");
  std::vector<std::string> merges;
  for (std::string line; std::getline(merges_file, line);) {
    merges.push_back(line);
  }
  std::vector<std::string> tokens;
  for (const char letter : word) {
    tokens.emplace_back(1, letter);
  }
  for (std::size_t merge = 1; merge < merges.size(); ++merge) {  // behind the version's line
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i] + " " + tokens[i + 1] == merges[merge]) {
        tokens[i] += tokens[i + 1];
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const std::string& token : tokens) {
    ids.push_back(vocabulary.at(token));
  }
  return ids;
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

TEST_CASE("a word has the merges of the textbook, however long it is") {
  const auto tokenizer = load_gpt2_tokenizer(kDirectory);
  const auto word_of = [](int count) {
    std::string word;
    for (int i = 0; i < count; ++i) {
      word += "thereinandaloneernst";
    }
    return word;
  };
  const std::vector<TokenId> twenty = tokenizer->encode(word_of(20));
  REQUIRE(twenty == merged_by_the_textbook(word_of(20)));
  REQUIRE(twenty.size() == 20UL * 12);  // of 20 letters each

  // Half a megabyte, for which an algorithm that looks through the word for each merge takes hours.
  // Merges reach no further than a few letters, so that each repeat has the same tokens.
  constexpr int kRepeats = 25'000;
  const std::ptrdiff_t period = std::ssize(tokenizer->encode(word_of(21))) - std::ssize(twenty);
  std::vector<TokenId> expected(twenty.begin(), twenty.begin() + 10 * period);
  for (int i = 0; i < kRepeats - 20; ++i) {
    expected.insert(expected.end(), expected.end() - period, expected.end());
  }
  expected.insert(expected.end(), twenty.begin() + 10 * period, twenty.end());
  REQUIRE(tokenizer->encode(word_of(kRepeats)) == expected);
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
  REQUIRE_THROWS_WITH(load_with(good, "h e\nl"), Catch::Contains("line 2"));
  REQUIRE_THROWS_WITH(load_with(good, "h e\nl "), Catch::Contains("line 2"));
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
