#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sentencepiece_trainer.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "data/tokenizers/sentencepiece_training.h"
#include "tests/data/piecewise.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const std::string kDirectory = SL_SOURCE_DIR "/tests/golden/sentencepiece/";

SentencePieceTokenizer golden_tokenizer() {
  return {read_file(kDirectory + "model.model"), "model.model"};
}

// A text with enough repetition to learn pieces from.
std::string sample_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += "The harbour lies in the north, and the ships of the north lie in the harbour.\n";
    text += "  Winter " + std::to_string(1800 + i) + " was colder than the one before it.\n\n";
  }
  return text;
}

}  // namespace

TEST_CASE("SentencePiece's ids and text are those of its own package") {
  const SentencePieceTokenizer tokenizer = golden_tokenizer();
  REQUIRE(tokenizer.vocabulary_size() == 200);
  REQUIRE(tokenizer.end_of_text() == 2);
  std::ifstream file(kDirectory + "cases.json");
  for (const auto& entry : nlohmann::json::parse(file)) {
    const std::string text = entry.at("text");
    CAPTURE(text);
    const std::vector<TokenId> ids = entry.at("ids");
    REQUIRE(tokenizer.encode(text) == ids);
    REQUIRE(tokenizer.decode(ids) == entry.at("decoded").get<std::string>());
  }
}

TEST_CASE("a model that puts a space before every text is cut so that pieces equal the whole") {
  const SentencePieceTokenizer tokenizer = golden_tokenizer();
  const std::string text =
      "The ship leaves  the harbour\nat dawn. 火\n火 a \n b 火 火車 (the) bridge , 42 xx\n\nxx the "
      "end";
  REQUIRE(pieces_equal_whole(tokenizer, text));
  REQUIRE(tokenizer.split_point("The ship leaves") == std::string_view("The ship").size());
  REQUIRE(tokenizer.split_point("The  ship") == 0);
}

TEST_CASE("a trained model gives every text back, and the same files give the same model") {
  const TemporaryDirectory directory;
  const std::string input = directory.file("text.txt");
  std::ofstream(input) << sample_text();
  const std::string model = train_sentencepiece({input}, 320);
  REQUIRE(train_sentencepiece({input}, 320) == model);

  const SentencePieceTokenizer tokenizer(model, "trained");
  REQUIRE(tokenizer.vocabulary_size() == 320);
  for (const std::string text :
       {"The harbour", " two  spaces ", "tab\tand\r\nline\n\n", "été 火 😀", ""}) {
    CAPTURE(text);
    REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
  }
  REQUIRE(tokenizer.encode("The harbour lies in the north").size() < 15);
  const std::string cut = sample_text().substr(0, 600) + "a\nb 火\n火 火 x\n\ny  z";
  REQUIRE(pieces_equal_whole(tokenizer, cut));
  REQUIRE(tokenizer.split_point("火車\n火車") == std::string_view("火車").size());
}

TEST_CASE("text without white space is trained on, however long it is") {
  const TemporaryDirectory directory;
  const std::string input = directory.file("text.txt");
  std::string text;
  while (text.size() < 150000) {
    text += "abcacbbac火"[text.size() * 7 % 9];
  }
  for (int i = 0; i < 30000; ++i) {
    text += "火";
  }
  std::ofstream(input) << text;
  CHECK_NOTHROW(train_sentencepiece({input}, 280));
}

TEST_CASE("rules of normalization are read, and refused where they lead nowhere") {
  const TemporaryDirectory directory;
  const std::string input = directory.file("text.txt");
  std::ofstream(input) << sample_text();
  const std::string prefix = directory.file("rules");
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + input + " --model_prefix=" + prefix +
      " --model_type=bpe --vocab_size=200 --normalization_rule_name=nmt_nfkc --minloglevel=2"
      " --num_threads=1 --hard_vocab_limit=false");
  REQUIRE(status.ok());
  const std::string model = read_file(prefix + ".model");
  const SentencePieceTokenizer tokenizer(model, "rules.model");
  CHECK(tokenizer.encode("ｈａｒｂｏｕｒ") == tokenizer.encode("harbour"));  // full width

  const std::string name = "nmt_nfkc";
  const std::size_t field = model.find(name) + name.size();
  REQUIRE(model.substr(field, 1) == "\x12");
  std::size_t at = field + 1;
  while (static_cast<unsigned char>(model[at]) >= 0x80U) {  // the length
    ++at;
  }
  const std::size_t trie = at + 1 + 4;  // behind its own length
  // The first unit, where every text begins, and many of the others.
  for (const auto& [first, count] : {std::pair(trie, 4), std::pair(trie + 4, 100000)}) {
    std::string damaged = model;
    const auto begin = damaged.begin() + static_cast<std::ptrdiff_t>(first);
    REQUIRE(count < damaged.end() - begin);
    std::fill_n(begin, count, '\x7f');
    CHECK_THROWS_WITH(SentencePieceTokenizer(damaged, "x.model"),
                      "x.model: a SentencePiece model with damaged rules of normalization");
  }
}

namespace {

// A field of protobuf's wire format with so many bytes.
std::string wire_field(char number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  std::size_t length = bytes.size();
  for (; length >= 0x80U; length >>= 7U) {
    field += static_cast<char>((length & 0x7fU) | 0x80U);
  }
  return field + static_cast<char>(length) + bytes;
}

// A model with a trie in which "a", "aa" and so on, up to so many, lead to `text`, or "a" back to
// the root.
std::string with_rules(const std::string& model, int rules, const std::string& text) {
  constexpr std::uint32_t kLetter = 'a';
  constexpr std::uint32_t kLeaf = 0x100;
  constexpr std::size_t kChildren = 256;
  const auto offset_bits = [](std::size_t offset) {
    return static_cast<std::uint32_t>(offset << 10U);
  };
  std::vector<std::uint32_t> trie(kChildren * static_cast<std::size_t>(rules + 2));
  trie[0] = offset_bits(kChildren);
  trie[kChildren] = 0x80000000U;  // no rule of nothing
  for (std::size_t rule = 1; rule <= static_cast<std::size_t>(rules); ++rule) {
    const std::size_t at = (kChildren * rule) ^ kLetter;
    trie[at] = offset_bits(at ^ (kChildren * (rule + 1))) | kLeaf | kLetter;
    trie[kChildren * (rule + 1)] = 0x80000000U;  // the text's first byte
  }
  if (rules == 0) {
    trie[kChildren ^ kLetter] = offset_bits(kLetter) | kLetter;
  }
  std::string charsmap(sizeof(std::uint32_t) * (trie.size() + 1), '\0');
  const auto bytes = static_cast<std::uint32_t>(sizeof(std::uint32_t) * trie.size());
  std::memcpy(charsmap.data(), &bytes, sizeof bytes);
  std::memcpy(charsmap.data() + sizeof bytes, trie.data(), bytes);
  charsmap += text + '\0';
  return model + wire_field(3, wire_field(2, charsmap));  // the later one of two fields counts
}

}  // namespace

TEST_CASE("rules for which the library has no room are refused") {
  const std::string path = std::string(SL_SOURCE_DIR) + "/tests/golden/sentencepiece/model.model";
  const std::string model = read_file(path);
  const std::string many(40, 'a');
  for (const auto& [rules, bytes] : {std::pair(31, 5), std::pair(1, 255)}) {
    INFO(rules << " rules, " << bytes << " bytes");
    const SentencePieceTokenizer tokenizer(
        with_rules(model, rules, std::string(static_cast<std::size_t>(bytes), 'b')), "x.model");
    CHECK_FALSE(tokenizer.encode(many).empty());
  }
  for (const auto& [rules, bytes] : {std::pair(32, 5), std::pair(1, 256), std::pair(0, 5)}) {
    INFO(rules << " rules, " << bytes << " bytes");
    const std::string damaged =
        with_rules(model, rules, std::string(static_cast<std::size_t>(bytes), 'b'));
    CHECK_THROWS_WITH(SentencePieceTokenizer(damaged, "x.model"),
                      "x.model: a SentencePiece model with damaged rules of normalization");
  }
}

TEST_CASE("more pieces of the user's that begin each other than the library has room for") {
  const TemporaryDirectory directory;
  const std::string input = directory.file("text.txt");
  std::ofstream(input) << sample_text();
  const auto model_with = [&](int pieces) {
    std::string symbols;
    for (int i = 1; i <= pieces; ++i) {
      symbols += (i == 1 ? "" : ",") + std::string(static_cast<std::size_t>(i), 'q');
    }
    const std::string prefix = directory.file("pieces");
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--input=" + input + " --model_prefix=" + prefix + " --user_defined_symbols=" + symbols +
        " --model_type=bpe --vocab_size=300 --minloglevel=2 --num_threads=1"
        " --hard_vocab_limit=false");
    REQUIRE(status.ok());
    return read_file(prefix + ".model");
  };
  const SentencePieceTokenizer most(model_with(64), "most.model");
  CHECK_FALSE(most.encode(std::string(100, 'q')).empty());
  CHECK_THROWS_WITH(SentencePieceTokenizer(model_with(65), "x.model"),
                    Catch::Contains("more than 64 user-defined pieces begin each other"));
}

TEST_CASE("vocabularies that the text cannot fill, and broken models, are refused") {
  const TemporaryDirectory directory;
  const std::string input = directory.file("text.txt");
  std::ofstream(input) << "too little\n";
  REQUIRE_THROWS_AS(train_sentencepiece({input}, 100000), ConfigError);
  REQUIRE_THROWS_AS(train_sentencepiece({input}, 10), ConfigError);
  REQUIRE_THROWS_AS(train_sentencepiece({directory.file("absent")}, 300), FileError);
  REQUIRE_THROWS_WITH(SentencePieceTokenizer("not a model", "x.model"),
                      Catch::StartsWith("x.model: not a SentencePiece model"));
  REQUIRE_THROWS_AS(SentencePieceTokenizer("", "x.model"), FileError);
}

}  // namespace slackline
