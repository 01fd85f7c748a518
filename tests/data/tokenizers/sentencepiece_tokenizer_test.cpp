#include "data/tokenizers/sentencepiece_tokenizer.h"

#include <algorithm>
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
