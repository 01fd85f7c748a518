#include "data/formats/tokenizer_file.h"

#include <filesystem>

#include "core/error.h"
#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const std::string kGolden = SL_SOURCE_DIR "/tests/golden";

// Copies vocab.json and merges.txt of the golden tokenizer; returns the option that names them.
std::string copy_gpt2_files(const TemporaryDirectory& directory) {
  for (const char* name : {"vocab.json", "merges.txt"}) {
    write_file_atomically(directory.file(name), read_file(kGolden + "/bpe/" + name));
  }
  return "gpt2:" + directory.path();
}

}  // namespace

TEST_CASE("a tokenizer loaded from its file is the one that was saved") {
  const std::string option = GENERATE(as<std::string>(),
                                      "byte",
                                      "gpt2:" + kGolden + "/bpe",
                                      "sentencepiece:" + kGolden + "/sentencepiece/model.model");
  CAPTURE(option);
  const auto saved = tokenizer_from_option(option);
  const std::string json = tokenizer_to_json(*saved);
  REQUIRE(tokenizer_path("corpus") == "corpus.tokenizer.json");

  const auto loaded = tokenizer_from_json(json, "corpus.tokenizer.json");
  REQUIRE(loaded->type() == saved->type());
  REQUIRE(loaded->vocabulary_size() == saved->vocabulary_size());
  REQUIRE(loaded->end_of_text() == saved->end_of_text());
  const std::string text = "The bridge, 42 times; 火 é \n\n two  spaces";
  REQUIRE(loaded->encode(text) == saved->encode(text));
  REQUIRE(loaded->decode(loaded->encode(text)) == saved->decode(saved->encode(text)));
  REQUIRE(tokenizer_to_json(*loaded) == json);
}

TEST_CASE("tokenizer options that name nothing we know are refused by name") {
  for (const std::string option : {"bytes", "byte:x", "gpt2", "gpt2:", "sentencepiece", ""}) {
    CAPTURE(option);
    REQUIRE_THROWS_AS(tokenizer_from_option(option), ConfigError);
    REQUIRE_THROWS_WITH(tokenizer_from_option(option), Catch::EndsWith("got '" + option + "'"));
  }
  REQUIRE_THROWS_AS(tokenizer_from_option("sentencepiece:/no/such.model"), FileError);
}

TEST_CASE("GPT-2's two files have the space before a text that tokenizer_config.json asks for") {
  const TemporaryDirectory directory;
  const std::string option = copy_gpt2_files(directory);
  const auto plain = tokenizer_from_option(option);
  const auto with = [&](const std::string& settings) {
    write_file_atomically(directory.file("tokenizer_config.json"), settings);
    return tokenizer_from_option(option);
  };
  CHECK(tokenizer_to_json(*with(R"({"add_prefix_space": false, "add_bos_token": true})")) ==
        tokenizer_to_json(*plain));
  const auto spaced = with(R"({"add_prefix_space": true, "eos_token": "<|endoftext|>"})");
  CHECK(spaced->type() == "hf");
  CHECK(spaced->end_of_text() == plain->end_of_text());
  CHECK(spaced->encode("the bridge") == plain->encode(" the bridge"));
  CHECK(spaced->encode("the bridge") != plain->encode("the bridge"));
  CHECK(spaced->encode("a<|endoftext|>b") == plain->encode(" a<|endoftext|>b"));
  const std::string json = tokenizer_to_json(*spaced);
  CHECK(tokenizer_to_json(*tokenizer_from_json(json, "t.json")) == json);

  write_file_atomically(directory.file("tokenizer_config.json"), R"({"add_prefix_space": "yes"})");
  REQUIRE_THROWS_AS(tokenizer_from_option(option), FileError);
  REQUIRE_THROWS_WITH(tokenizer_from_option(option),
                      Catch::Contains("tokenizer_config.json: add_prefix_space: "));
}

TEST_CASE("tokens that GPT-2's two files do not have are refused by the file that names them") {
  const TemporaryDirectory directory;
  const std::string option = copy_gpt2_files(directory);
  const auto refuses = [&](const std::string& name, const std::string& json) {
    const std::string path = directory.file(name);
    write_file_atomically(path, json);
    REQUIRE_THROWS_AS(tokenizer_from_option(option), FileError);
    REQUIRE_THROWS_WITH(tokenizer_from_option(option),
                        Catch::StartsWith(path + ": names the token "));
    std::filesystem::remove(path);
  };
  refuses("added_tokens.json", R"({"<|end|>": 1})");
  refuses("special_tokens_map.json", R"({"eos_token": "</s>"})");
  refuses("tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  write_file_atomically(directory.file("tokenizer_config.json"),
                        R"({"eos_token": "<|endoftext|>"})");
  REQUIRE(tokenizer_from_option(option)->type() == "gpt2");
}

TEST_CASE("broken tokenizer files are refused with their name") {
  const auto refuses = [](const std::string& json, const std::string& why) {
    CAPTURE(json);
    REQUIRE_THROWS_AS(tokenizer_from_json(json, "t.json"), FileError);
    REQUIRE_THROWS_WITH(tokenizer_from_json(json, "t.json"),
                        Catch::StartsWith("t.json: ") && Catch::Contains(why));
  };
  const std::string head = R"({"format": "slackline-tokenizer", "version": 1, )";
  refuses("", "line 1, column 1");
  refuses("[]", "JSON object");
  refuses(R"({"a": )" + std::string(400000, '[') + std::string(400000, ']') + "}", "nested deeper");
  refuses(R"({"a": 1, "a": 2})", "key given twice");
  refuses("{}", "format");
  refuses(R"({"format": "other", "version": 1})", "'other'");
  refuses(R"({"format": "slackline-tokenizer", "version": 2})", "version 2");
  refuses(head + R"("type": "word"})", "'word'");
  refuses(head + R"("type": 3})", "type: expected a string");
  refuses(head + R"("type": "gpt2", "tokens": [3], "merges": []})", "not a tokenizer");
  refuses(head + R"("type": "byte", "vocabulary_size": 256, "end_of_text": 256})", "do not fit");
  refuses(head + R"("type": "sentencepiece", "model": "***"})", "base64");
  refuses(head + R"("type": "sentencepiece", "model": "===="})", "base64");
  refuses(head + R"("type": "sentencepiece", "model": "AAAA"})", "SentencePiece");
  refuses(head + R"("type": "gpt2", "tokens": ["a"], "merges": []})", "byte");
}

}  // namespace slackline
