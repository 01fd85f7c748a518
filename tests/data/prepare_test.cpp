#include "data/prepare.h"

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/token_file.h"
#include "data/formats/tokenizer_file.h"
#include "tests/support/catch.h"
#include "tests/support/document_boundaries.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const std::string kGolden = SL_SOURCE_DIR "/tests/golden";

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::vector<TokenId> all_tokens(const TokenFile& file) {
  std::vector<TokenId> tokens(file.num_tokens());
  file.read(0, tokens);
  return tokens;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  return tokenizer_from_json(read_file(path), path);
}

// About `bytes` bytes in several scripts, with white space of several kinds.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "It's the " + std::to_string(i) +
            "th line;  «été» Привет, мир! 火車は\t速い。 😀 we'll see\n";
    text += i % 7 == 0 ? "\n \n" : "";
  }
  return text;
}

}  // namespace

TEST_CASE("text files become one document each, bytes and an end-of-text") {
  const TemporaryDirectory directory;
  write(directory.file("a.txt"), "one\n\xc3\xa9");
  write(directory.file("empty.txt"), "");
  write(directory.file("b.txt"), "2");
  const PrepareSummary summary = prepare(
      {.inputs = {directory.file("a.txt"), directory.file("empty.txt"), directory.file("b.txt")},
       .out = directory.file("new/sub/corpus")});
  REQUIRE(summary.documents == 2);
  REQUIRE(summary.tokens == 9);
  REQUIRE(summary.text_bytes == 7);
  REQUIRE(summary.vocabulary == 257);
  const auto file = open_token_file(directory.file("new/sub/corpus"), 257);
  REQUIRE(std::filesystem::file_size(file->path()) == 2 * file->num_tokens());
  REQUIRE(all_tokens(*file) ==
          std::vector<TokenId>{'o', 'n', 'e', '\n', 0xc3, 0xa9, 256, '2', 256});
  REQUIRE(file->num_sequences() == 2);
  REQUIRE(load_tokenizer(directory.file("new/sub/corpus.tokenizer.json"))->type() == "byte");
}

TEST_CASE("a long text is stored in sequences that give the ids of the whole") {
  const std::string option = GENERATE(as<std::string>(),
                                      "byte",
                                      "gpt2:" + kGolden + "/bpe",
                                      "sentencepiece:" + kGolden + "/sentencepiece/model.model");
  CAPTURE(option);
  const TemporaryDirectory directory;
  const std::string text = long_text(50000);
  write(directory.file("long.txt"), text);
  prepare({.inputs = {directory.file("long.txt")},
           .tokenizer = option,
           .out = directory.file("corpus")});
  const auto file = open_token_file(directory.file("corpus"));
  const auto tokenizer = load_tokenizer(directory.file("corpus.tokenizer.json"));
  std::vector<TokenId> whole = tokenizer->encode(text);
  whole.push_back(tokenizer->end_of_text());
  REQUIRE(all_tokens(*file) == whole);
  REQUIRE(document_boundaries(directory.file("corpus")) ==
          std::vector<std::uint64_t>{0, file->num_sequences()});
  REQUIRE(file->num_sequences() >= 10);
}

TEST_CASE("a text without a place to cut it is encoded as a whole") {
  const TemporaryDirectory directory;
  const std::string text(30000, 'x');
  write(directory.file("x.txt"), text);
  prepare({.inputs = {directory.file("x.txt")},
           .tokenizer = "gpt2:" + kGolden + "/bpe",
           .out = directory.file("x")});
  const auto file = open_token_file(directory.file("x"));
  REQUIRE(file->num_sequences() == 1);
  REQUIRE(file->num_tokens() ==
          load_tokenizer(directory.file("x.tokenizer.json"))->encode(text).size() + 1);
}

TEST_CASE("each line of JSON is a document") {
  const TemporaryDirectory directory;
  const std::string name = directory.file(GENERATE("a.jsonl", "a.json", "a.ndjson"));
  write(name,
        "{\"text\": \"a\\u00e9\\n\"}\r\n\n  \n{\"id\": 7, \"text\": \"\"}\n{\"n\": {\"text\": 1}, "
        "\"text\": \"b\"}");
  const PrepareSummary summary = prepare({.inputs = {name}, .out = directory.file("corpus")});
  REQUIRE(summary.documents == 2);
  const auto file = open_token_file(directory.file("corpus"));
  REQUIRE(all_tokens(*file) == std::vector<TokenId>{'a', 0xc3, 0xa9, '\n', 256, 'b', 256});
  REQUIRE(document_boundaries(directory.file("corpus")) == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("what is wrong with an input is said with its place, and nothing is left behind") {
  const TemporaryDirectory directory;
  const auto refuses =
      [&](const std::string& name, const std::string& content, const std::string& why) {
        CAPTURE(name, why);
        write(directory.file(name), content);
        const PrepareOptions options{.inputs = {directory.file(name)},
                                     .out = directory.file("out/set")};
        REQUIRE_THROWS_AS(prepare(options), FileError);
        REQUIRE_THROWS_WITH(prepare(options),
                            Catch::StartsWith(directory.file(name)) && Catch::Contains(why));
        REQUIRE(std::filesystem::is_empty(directory.file("out")));
      };
  refuses("a.txt", "good\xff", "offset 4: not UTF-8");
  refuses("b.txt", std::string(100000, 'a') + "\xc3(" + std::string(100000, 'a'), "offset 100000:");
  refuses("c.txt", std::string(100000, 'a') + "\xe7\x81", "offset 100000:");
  refuses("d.txt", "", "no text");
  refuses("e.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xff\"}\n", "offset 24: not UTF-8");
  refuses("f.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n", "line 2: a JSON object");
  refuses("g.jsonl", "{\"txt\": \"a\"}\n", "line 1: a JSON object");
  refuses("h.json", "[\n", "line 1: not JSON");
  refuses("i.jsonl", "{\"text\": \"\\ud800\"}\n", "line 1: not JSON");
  refuses("j.jsonl", "\n\n", "no text");
  refuses("l.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n", "line 1: not JSON");
  refuses("k.jsonl",
          std::string("{\"text\": \"a\"}\0{\"text\": \"b\"}\n", 28),
          "line 1: not JSON: NUL byte");
  REQUIRE_THROWS_AS(prepare({.inputs = {directory.path()}, .out = directory.file("o")}), FileError);
  REQUIRE_THROWS_AS(prepare({.inputs = {directory.file("absent")}, .out = directory.file("o")}),
                    FileError);
}

TEST_CASE("a run that fails leaves the data set that stood there") {
  const TemporaryDirectory directory;
  write(directory.file("good.txt"), "good");
  write(directory.file("bad.txt"), "\xff");
  write(directory.file("large.txt"), long_text(3000000));
  prepare({.inputs = {directory.file("good.txt")}, .out = directory.file("set")});
  REQUIRE_THROWS_AS(prepare({.inputs = {directory.file("bad.txt")}, .out = directory.file("set")}),
                    FileError);
  // Small files meet a full disk at the end alone.
  for (const auto& [bytes, input] : {std::pair{3, "good.txt"}, std::pair{100000, "large.txt"}}) {
    CAPTURE(input);
    const FileSizeLimit full_disk(static_cast<std::size_t>(bytes));
    REQUIRE_THROWS_AS(prepare({.inputs = {directory.file(input)}, .out = directory.file("set")}),
                      FileError);
  }
  REQUIRE(open_token_file(directory.file("set"))->num_tokens() == 5);
}

TEST_CASE("options that make no sense are refused by name") {
  REQUIRE_THROWS_WITH(prepare({.out = "x"}), Catch::StartsWith("--input"));
  REQUIRE_THROWS_WITH(prepare({.inputs = {"a"}}), Catch::StartsWith("--out"));
  REQUIRE_THROWS_WITH(
      prepare({.inputs = {"a"}, .tokenizer = "byte", .out = "x", .train_sentencepiece = 300}),
      Catch::StartsWith("--train-sentencepiece"));
  REQUIRE_THROWS_WITH(prepare({.inputs = {"/dev/null"},
                               .tokenizer = "sentencepiece",
                               .out = "x",
                               .train_sentencepiece = 300}),
                      Catch::Contains("must be regular files; got /dev/null"));
  const TemporaryDirectory directory;
  REQUIRE_THROWS_AS(prepare({.inputs = {directory.file("absent")},
                             .tokenizer = "sentencepiece",
                             .out = directory.file("x"),
                             .train_sentencepiece = 300}),
                    FileError);
}

TEST_CASE("an input that has the name of an output stays") {
  const TemporaryDirectory directory;
  const std::string out = directory.file("set");
  const std::string text = "some text, some more text, and the last of it";
  for (const char* ending : {".bin", ".idx", ".tokenizer.json"}) {
    INFO(ending);
    write_file_atomically(out + ending, text);
    REQUIRE_THROWS_WITH(prepare({.inputs = {out + ending}, .tokenizer = "byte", .out = out}),
                        Catch::StartsWith("--out: ") && Catch::Contains("would overwrite"));
    REQUIRE(read_file(out + ending) == text);
    std::filesystem::remove(out + ending);
  }
  write_file_atomically(out + ".model", text);
  REQUIRE_THROWS_WITH(prepare({.inputs = {out + ".model"},
                               .tokenizer = "sentencepiece",
                               .out = out,
                               .train_sentencepiece = 300}),
                      Catch::StartsWith("--out: "));
  REQUIRE_NOTHROW(prepare({.inputs = {out + ".model"}, .tokenizer = "byte", .out = out}));
}

TEST_CASE("what bears an output's name and is none stays, and so does an input that grows there") {
  const TemporaryDirectory directory;
  const std::string out = directory.file("set");
  write(directory.file("text.txt"), "text");
  std::filesystem::create_directories(out + ".idx/kept");
  REQUIRE_THROWS_AS(prepare({.inputs = {directory.file("text.txt")}, .out = out}), FileError);
  REQUIRE(std::filesystem::exists(out + ".idx/kept"));
  std::filesystem::remove_all(out + ".idx");
  write(out + ".bin.partial", "text");
  REQUIRE_THROWS_WITH(prepare({.inputs = {out + ".bin.partial"}, .out = out}),
                      Catch::Contains("would overwrite"));
  REQUIRE(read_file(out + ".bin.partial") == "text");
}

TEST_CASE("a SentencePiece model is replaced when all else is there, and under no other name") {
  const TemporaryDirectory directory;
  const std::string model = directory.file("my.model");
  write(directory.file("text.txt"), long_text(1'000'000));
  write(model, "an older one");
  const auto train = [&](const std::string& tokenizer, const std::vector<std::string>& inputs) {
    prepare({.inputs = inputs,
             .tokenizer = tokenizer,
             .out = directory.file("set"),
             .train_sentencepiece = 340});
  };
  const std::string text = directory.file("text.txt");
  REQUIRE_THROWS_WITH(train("sentencepiece/" + model, {text}),
                      Catch::StartsWith("--train-sentencepiece"));
  std::filesystem::create_directories(directory.file("set.bin"));
  REQUIRE_THROWS_AS(train("sentencepiece:" + model, {text}), FileError);
  std::filesystem::remove_all(directory.file("set.bin"));
  const FileSizeLimit full_disk(400'000);  // more than the model takes, less than the tokens do
  REQUIRE_THROWS_AS(train("sentencepiece:" + model, {text}), FileError);
  REQUIRE(read_file(model) == "an older one");
}

TEST_CASE("a SentencePiece model is trained, written where asked, and used") {
  const TemporaryDirectory directory;
  write(directory.file("text.txt"), long_text(20000));
  const std::string model = directory.file("my.model");
  prepare({.inputs = {directory.file("text.txt")},
           .tokenizer = "sentencepiece:" + model,
           .out = directory.file("set"),
           .train_sentencepiece = 340});
  REQUIRE(std::filesystem::exists(model));
  const auto tokenizer = load_tokenizer(directory.file("set.tokenizer.json"));
  REQUIRE(tokenizer->vocabulary_size() == 340);
  const auto file = open_token_file(directory.file("set"), 340);
  REQUIRE(tokenizer->decode(all_tokens(*file)) == read_file(directory.file("text.txt")));
  REQUIRE(file->num_sequences() > 1);
}

TEST_CASE("progress reaches all bytes") {
  const TemporaryDirectory directory;
  write(directory.file("a.txt"), long_text(30000));
  write(directory.file("b.txt"), "the end");
  std::uint64_t last = 0;
  std::uint64_t all = 0;
  const PrepareSummary summary = prepare(
      {.inputs = {directory.file("a.txt"), directory.file("b.txt")}, .out = directory.file("set")},
      [&](std::uint64_t done, std::uint64_t total) {
        REQUIRE(done >= last);
        last = done;
        all = total;
      });
  REQUIRE(last == all);
  REQUIRE(all == summary.text_bytes);
}

}  // namespace slackline
