#include "data/formats/token_file.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/megatron_writer.h"
#include "tests/support/catch.h"
#include "tests/support/document_boundaries.h"
#include "tests/support/temporary_directory.h"

namespace slackline {
namespace {

const std::string kGolden = SL_SOURCE_DIR "/tests/golden";

nlohmann::json golden_json(const std::string& name) {
  std::ifstream file(kGolden + name);
  return nlohmann::json::parse(file);
}

std::vector<TokenId> sequence(const TokenFile& file, std::uint64_t index) {
  std::vector<TokenId> tokens(file.sequence_length(index));
  file.read(file.sequence_start(index), tokens);
  return tokens;
}

// Bytes of one token of a Megatron data set.
std::uint64_t token_bytes(const TokenFile& file) {
  return std::filesystem::file_size(file.path()) / file.num_tokens();
}

// An llm.c token file of `count` tokens of four bytes, all 128000.
void write_llmc(const std::string& path,
                std::int32_t magic,
                std::int32_t version,
                std::int32_t count) {
  std::vector<std::int32_t> words(256 + static_cast<std::size_t>(count), 128000);
  std::fill_n(words.begin(), 256, 0);
  words[0] = magic;
  words[1] = version;
  words[2] = count;
  const auto bytes = static_cast<std::streamsize>(words.size() * sizeof(std::int32_t));
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(words.data()), bytes);
}

// A data set of 3 sequences in 2 documents whose bytes a test can break.
class SmallDataSet {
 public:
  SmallDataSet() {
    MegatronWriter writer(prefix(), 300);
    for (const std::vector<TokenId>& tokens :
         {std::vector<TokenId>{1, 2, 3}, std::vector<TokenId>{4}, std::vector<TokenId>{299, 6}}) {
      writer.append(tokens);
      writer.end_sequence();
      if (tokens.size() != 3) {
        writer.end_document();
      }
    }
    writer.commit_tokens();
    writer.commit_index();
  }

  [[nodiscard]] std::string prefix() const { return directory_.file("set"); }

  void overwrite(const std::string& suffix, std::size_t offset, const std::string& bytes) const {
    std::string content = read_file(prefix() + suffix);
    content.replace(offset, bytes.size(), bytes);
    std::ofstream(prefix() + suffix, std::ios::binary) << content;
  }

  void resize(const std::string& suffix, std::size_t bytes) const {
    std::filesystem::resize_file(prefix() + suffix, bytes);
  }

  void refuses(const std::string& why) const {
    REQUIRE_THROWS_AS(open_token_file(prefix()), FileError);
    REQUIRE_THROWS_WITH(open_token_file(prefix()),
                        Catch::StartsWith(prefix()) && Catch::Contains(why));
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace

TEST_CASE("Megatron's own files read as it wrote them") {
  const std::string name = GENERATE(as<std::string>(), "/megatron/tiny", "/megatron/tiny_i32");
  const nlohmann::json golden = golden_json(name + ".json");
  const auto file = open_token_file(kGolden + name + GENERATE("", ".bin", ".idx"));
  REQUIRE(token_bytes(*file) == (golden.at("dtype") == "u16" ? 2U : 4U));
  REQUIRE(file->num_sequences() == golden.at("tokens").size());
  std::uint64_t total = 0;
  for (std::uint64_t s = 0; s < file->num_sequences(); ++s) {
    REQUIRE(sequence(*file, s) == golden.at("tokens").at(s).get<std::vector<TokenId>>());
    total += file->sequence_length(s);
  }
  REQUIRE(file->num_tokens() == total);
  const std::vector<std::uint64_t> boundaries = golden.at("boundaries");
  REQUIRE(document_boundaries(kGolden + name) == boundaries);
}

TEST_CASE("our writer makes the files that Megatron makes, byte for byte") {
  const nlohmann::json golden = golden_json("/megatron/tiny_i32.json");
  const TemporaryDirectory directory;
  MegatronWriter writer(directory.file("ours"), 128256);
  for (const auto& tokens : golden.at("tokens")) {
    const std::vector<TokenId> ids = tokens;
    writer.append(std::span(ids).first(1));
    writer.append(std::span(ids).subspan(1));
    writer.end_sequence();
    writer.end_document();
  }
  writer.commit_tokens();
  writer.commit_index();
  for (const std::string suffix : {".bin", ".idx"}) {
    REQUIRE(read_file(directory.file("ours").append(suffix)) ==
            read_file((kGolden + "/megatron/tiny_i32").append(suffix)));
  }
}

TEST_CASE(
    "the writer uses two bytes below a vocabulary of 65500, and leaves nothing when given up") {
  const TemporaryDirectory directory;
  { const MegatronWriter given_up(directory.file("a"), 300); }
  REQUIRE(std::filesystem::is_empty(directory.path()));
  for (const auto& [vocabulary, bytes] : {std::pair{65499, 2U}, std::pair{65500, 4U}}) {
    MegatronWriter writer(directory.file("b"), vocabulary);
    writer.append(std::vector<TokenId>{65498});
    writer.end_sequence();
    writer.end_document();
    writer.commit_tokens();
    writer.commit_index();
    const auto file = open_token_file(directory.file("b"));
    REQUIRE(token_bytes(*file) == bytes);
    REQUIRE(sequence(*file, 0) == std::vector<TokenId>{65498});
  }
}

TEST_CASE("every field of a Megatron index is checked") {
  struct Damage {
    std::size_t offset = 0;
    std::string bytes{};
    std::string message{};
  };

  // 34 bytes of header, 3 lengths, 3 offsets at 46, 3 boundaries at 70.
  const Damage damages[] = {
      {0, "N", "magic"},
      {9, "\2", "version 1 is expected, got 2"},
      {17, "\6", "got f64"},
      {17, "\1", "got u8 (1)"},
      {17, "\xc8", "unknown (200)"},
      {18, std::string(8, '\xff'), "truncated"},
      {26, std::string(8, '\x7f'), "truncated"},
      {37, "\xff", "negative length"},
      {54, "\10", "sequence 1 begins at byte 6"},
      {61, "\xff", "sequence 1 begins"},
      {70, "\1", "boundary 0 is 1"},
      {78, "\4", "boundary 2 is 3"},
      {86, "\2", "boundary 2 is 2"},
  };
  for (const Damage& damage : damages) {
    CAPTURE(damage.offset, damage.message);
    const SmallDataSet set;
    set.overwrite(".idx", damage.offset, damage.bytes);
    set.refuses(damage.message);
  }
}

TEST_CASE("Megatron files of the wrong size, or without the other one, are refused") {
  const SmallDataSet set;  // an index of 94 bytes, tokens of 12
  REQUIRE(document_boundaries(set.prefix()) == std::vector<std::uint64_t>{0, 2, 3});
  SECTION("an empty index") {
    set.resize(".idx", 0);
    set.refuses("magic");
  }
  SECTION("an index cut in its header or its arrays, or longer") {
    const std::size_t bytes = GENERATE(20, 33, 93, 96, 98);
    set.resize(".idx", bytes);
    set.refuses("truncated");
  }
  SECTION("tokens cut or too many") {
    const std::size_t bytes = GENERATE(0, 10, 14);
    set.resize(".bin", bytes);
    set.refuses("describes 12 bytes, got " + std::to_string(bytes));
  }
  SECTION("one of the two missing") {
    const std::string suffix = GENERATE(".bin", ".idx");
    std::filesystem::remove(set.prefix() + suffix);
    set.refuses(suffix);
  }
}

TEST_CASE(
    "a prefix may end like one of its files, and is meant before what that file's name means") {
  const TemporaryDirectory directory;
  for (const char* name : {"set", "set.bin"}) {
    MegatronWriter writer(directory.file(name), 300);
    writer.append(std::vector<TokenId>(std::string(name) == "set" ? 3 : 5, 1));
    writer.end_sequence();
    writer.end_document();
    writer.commit_tokens();
    writer.commit_index();
  }
  CHECK(open_token_file(directory.file("set"))->sequence_length(0) == 3);
  CHECK(open_token_file(directory.file("set.bin"))->sequence_length(0) == 5);
  CHECK(open_token_file(directory.file("set.idx"))->sequence_length(0) == 3);
  CHECK(token_file_exists(directory.file("set.bin")));
}

TEST_CASE("a multimodal index, with modes at its end, opens") {
  const SmallDataSet set;
  set.resize(".idx", 97);
  REQUIRE(open_token_file(set.prefix())->num_tokens() == 6);
}

TEST_CASE("tokens of eight bytes read, and those beyond an id are refused") {
  const TemporaryDirectory directory;
  const std::string idx = read_file(kGolden + "/megatron/tiny_i32.idx");
  // One sequence of two tokens as i64.
  const auto write_set = [&](std::int64_t second) {
    const std::int64_t tokens[] = {7, second};
    std::ofstream(directory.file("w.bin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens), sizeof tokens);
    std::string bytes = idx.substr(0, 34) + std::string(4 + 8 + 16, '\0');
    bytes[17] = 5;
    bytes[18] = 1;
    bytes[26] = 2;
    bytes[34] = 2;
    bytes[34 + 12 + 8] = 1;
    std::ofstream(directory.file("w.idx"), std::ios::binary) << bytes;
  };
  write_set(100000);
  REQUIRE(sequence(*open_token_file(directory.file("w")), 0) == std::vector<TokenId>{7, 100000});
  write_set(std::int64_t{1} << 32U);
  REQUIRE_THROWS_WITH(open_token_file(directory.file("w")), Catch::Contains("token 4294967296"));
}

TEST_CASE("the first token beyond the vocabulary is named with its place") {
  const SmallDataSet set;
  REQUIRE(open_token_file(set.prefix(), 300)->num_tokens() == 6);
  REQUIRE_THROWS_AS(open_token_file(set.prefix(), 299), FileError);
  REQUIRE_THROWS_WITH(open_token_file(set.prefix(), 299),
                      set.prefix() +
                          ".bin: offset 8: token 299 at position 4 is not in the "
                          "vocabulary (0 to 298)");
  std::vector<TokenId> many(10000, 5);
  many[9000] = -3;
  const TokenArray tokens(std::as_bytes(std::span(many)), TokenWidth::four);
  REQUIRE_THROWS_WITH(
      tokens.require_below(6, "f", 8),
      "f: offset 36008: token -3 at position 9000 is not in the vocabulary (0 to 5)");
  REQUIRE_THROWS_WITH(tokens.require_below(5, "f", 0), Catch::Contains("token 5 at position 0"));
}

TEST_CASE("llm.c's token files read; a short one is one sequence") {
  const nlohmann::json golden = golden_json("/llmc/tiny.json");
  const auto file = open_token_file(kGolden + "/llmc/tiny.bin", 50257);
  const std::vector<TokenId> expected = golden.at("tokens");
  REQUIRE(file->num_tokens() == expected.size());
  REQUIRE(file->num_sequences() == 1);
  REQUIRE(sequence(*file, 0) == expected);
  REQUIRE_THROWS_WITH(open_token_file(kGolden + "/llmc/tiny.bin", 50256),
                      Catch::Contains("offset 1024: token 50256 at position 0"));
}

TEST_CASE("llm.c files of LLaMA-3 have four bytes a token; long ones are cut in sequences") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("llama.bin");
  write_llmc(path, 20240801, 7, 10000);
  const auto file = open_token_file(path);
  REQUIRE(std::filesystem::file_size(path) == 1024 + 4 * file->num_tokens());
  REQUIRE(file->num_sequences() == 3);
  REQUIRE(file->sequence_length(0) == 4096);
  REQUIRE(file->sequence_length(2) == 10000 - 2 * 4096);
  REQUIRE(sequence(*file, 2).back() == 128000);
}

TEST_CASE("every field of an llm.c header is checked") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tokens.bin");
  const auto refuses = [&](const std::string& why) {
    REQUIRE_THROWS_AS(open_llmc_file(path, 200000), FileError);
    REQUIRE_THROWS_WITH(open_llmc_file(path, 200000),
                        Catch::StartsWith(path) && Catch::Contains(why));
  };
  write_llmc(path, 20240801, 6, 10);
  refuses("version 7 is expected, got 6");
  write_llmc(path, 20240520, 7, 10);
  refuses("version 1 is expected, got 7");
  write_llmc(path, 20240326, 3, 10);  // a model
  refuses("wrong magic");
  REQUIRE_THROWS_WITH(open_token_file(path), Catch::Contains("wrong magic"));
  write_llmc(path, 20240801, 7, 10);
  for (const std::size_t bytes : {1066, 1062, 1024, 1023, 100, 0}) {
    std::filesystem::resize_file(path, bytes);
    refuses("truncated");
  }
}

TEST_CASE("data that is not there, or not tokens, is refused by its name") {
  const TemporaryDirectory directory;
  REQUIRE_THROWS_WITH(open_token_file(directory.file("absent")),
                      Catch::StartsWith(directory.file("absent: no such data")));
  std::ofstream(directory.file("text.txt")) << "only text";
  REQUIRE_THROWS_WITH(open_token_file(directory.file("text.txt")), Catch::Contains("wrong magic"));
  write_file_atomically(directory.file("tasks.jsonl"), R"({"context": "a", "target": "b"})");
  REQUIRE_THROWS_WITH(open_token_file(directory.file("tasks.jsonl")),
                      Catch::Contains("tasks files as training data are not built yet"));
  REQUIRE_THROWS_AS(open_token_file(directory.path()), FileError);
}

}  // namespace slackline
