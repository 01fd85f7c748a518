#include "core/checkpoint/manifest.h"

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using Catch::Contains;
using Catch::Equals;

std::string refusal(const std::string& text) {
  return testing::refusal_of<FileError>([&] { return parse_manifest(text, "dir/manifest.json"); });
}

std::string with_tensors(const std::string& tensors) {
  return R"({"format": 1, "step": 3, "model": {}, "tensors": {)" + tensors +
         R"(}, "files": {"f": {"bytes": 8, "xxh3": "00000000000000ff"}}})";
}

// A (4, 6) tensor in the given pieces.
std::string with_pieces(const std::string& pieces) {
  return with_tensors(R"("w/a": {"shape": [4, 6], "dtype": "f32", "pieces": [)" + pieces + "]}");
}

std::string piece(const std::string& start, const std::string& shape) {
  return R"({"file": "f", "start": [)" + start + R"(], "shape": [)" + shape + "]}";
}

}  // namespace

TEST_CASE("a manifest is read back as it was written") {
  Manifest manifest;
  manifest.step = 42;
  manifest.documents.model = R"({"layers":2,"vocab":257})";
  manifest.documents.tokenizer = R"({"type":"byte"})";
  manifest.files["f"] = {123, 0x00ff00000000abcdU};
  ManifestTensor& tensor = manifest.tensors["residual/data_gradient/w"];
  tensor = {{4, 6}, DType::bf16, {}};
  tensor.pieces.push_back({"f", {{0, 0}, {4, 2}}, 1});
  tensor.pieces.push_back({"f", {{0, 2}, {4, 4}}, 1});
  const std::string text = manifest_text(manifest);
  const Manifest again = parse_manifest(text, "m");
  REQUIRE(manifest_text(again) == text);
  REQUIRE(again.step == 42);
  REQUIRE(again.documents.model == manifest.documents.model);
  REQUIRE(again.documents.plan.empty());
  REQUIRE(again.files.at("f").xxh3 == manifest.files["f"].xxh3);
  REQUIRE(again.tensors.begin()->second.pieces[1].region.start == std::vector<std::int64_t>{0, 2});
  REQUIRE(again.tensors.begin()->second.pieces[1].worker == 1);
}

TEST_CASE("pieces that cover a tensor are accepted, holes and overlaps are not") {
  const auto join = [](const std::string& a, const std::string& b) { return a + "," + b; };
  CHECK_THAT(refusal(with_pieces(piece("0,0", "4,6"))), Equals("accepted"));
  CHECK_THAT(refusal(with_pieces(join(piece("0,0", "4,2"), piece("0,2", "4,4")))),
             Equals("accepted"));
  CHECK_THAT(refusal(with_pieces(piece("0,0", "4,5"))),
             Contains("dir/manifest.json: tensors.w/a.pieces: pieces must cover the tensor"));
  CHECK_THAT(refusal(with_pieces(join(piece("0,0", "4,3"), piece("0,2", "4,3")))),
             Contains("tensors.w/a.pieces: pieces 0 and 1 overlap"));
  CHECK_THAT(refusal(with_pieces("")), Contains("a tensor needs at least one piece"));
  CHECK_THAT(refusal(with_pieces(piece("0,1", "4,6"))),
             Contains("pieces.0.start: the piece must lie inside the tensor (4, 6); got [0,1]"));
  CHECK_THAT(refusal(with_pieces(piece("0", "4"))), Contains("must lie inside"));
  CHECK_THAT(refusal(with_pieces(piece("9223372036854775807,0", "4,6"))),
             Contains("must lie inside"));
}

TEST_CASE("garbage in a manifest is refused with its place and the rule") {
  CHECK_THAT(refusal("garbage"), Contains("dir/manifest.json: not a manifest: line 1, column 1"));
  CHECK_THAT(refusal(""), Contains("dir/manifest.json: not a manifest"));
  CHECK_THAT(refusal("{}"), Equals("dir/manifest.json: format: required key is missing"));
  CHECK_THAT(refusal(R"({"format": 2})"), Contains("this program reads format 1; got 2"));
  CHECK_THAT(refusal(R"({"format": 1, "step": -1})"), Contains("step: must be at least 0"));
  CHECK_THAT(refusal(R"({"format": 1, "step": 1})"), Contains("model: is required"));
  CHECK_THAT(refusal(R"({"format": 1, "step": 1, "model": {}, "tensor": {}})"),
             Contains("tensor: unknown key; nearest is tensors"));
  CHECK_THAT(refusal(with_tensors(R"("w/a": {"shape": [1], "dtype": "f33", "pieces": []})")),
             Contains("tensors.w/a.dtype: must be one of f32"));
  CHECK_THAT(refusal(with_tensors(
                 R"("w/a": {"shape": [4294967296, 4294967296], "dtype": "f32", "pieces": []})")),
             Contains("2^61 elements"));
  CHECK_THAT(refusal(with_tensors(R"("w/a": 1, "w/a": 2)")), Contains("key given twice"));
  CHECK_THAT(refusal(with_pieces(R"({"file": "g", "start": [0, 0], "shape": [4, 6]})")),
             Contains("pieces.0.file: must be listed under files; got \"g\""));
}

TEST_CASE("file names that lead out of the directory and bad hashes are refused") {
  const auto with_file = [](const std::string& name, const std::string& hash) {
    return R"({"format": 1, "step": 1, "model": {}, "files": {")" + name +
           R"(": {"bytes": 1, "xxh3": ")" + hash + R"("}}})";
  };
  const std::string hash = "0123456789abcdef";
  CHECK_THAT(refusal(with_file("a.safetensors", hash)), Equals("accepted"));
  for (const char* name : {"../a", "/etc/passwd", "a/b", "..", "", "manifest.json"}) {
    CHECK_THAT(refusal(with_file(name, hash)), Contains("must be the name of a file"));
  }
  for (const char* bad : {"123", "0123456789abcdeg", "+123456789abcdef", "0123456789abcdef0"}) {
    CHECK_THAT(refusal(with_file("a", bad)), Contains("xxh3: must be 16 hexadecimal digits"));
  }
}

TEST_CASE("keys of pieces tell where they start and whose they are") {
  REQUIRE(piece_key("w/a", {4, 6}, {{0, 0}, {4, 6}}, {}) == "w/a");
  REQUIRE(piece_key("w/a", {4, 6}, {{0, 0}, {2, 6}}, {}) == "w/a@0,0");
  REQUIRE(piece_key("w/a", {4, 6}, {{2, 3}, {2, 3}}, {}) == "w/a@2,3");
  REQUIRE(piece_key("r/s/a", {4}, {{0}, {4}}, 3) == "r/s/a#3");
  REQUIRE(piece_key("w/s", {}, {{}, {}}, {}) == "w/s");
}

}  // namespace slackline
