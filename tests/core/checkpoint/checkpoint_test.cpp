#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/logical_hash.h"
#include "core/checkpoint/write_checkpoint.h"
#include "core/hash.h"
#include "tests/core/checkpoint/checkpoint_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/refusal.h"

namespace slackline {

namespace {

using Catch::Contains;
using Catch::Equals;
namespace fs = std::filesystem;

// Returns what opening and verifying the checkpoint says.
std::string refusal(const std::string& directory) {
  return testing::refusal_of<FileError>([&] {
    const Checkpoint checkpoint(directory);
    checkpoint.verify();
  });
}

// The elements of a rectangle of a matrix with `columns` columns.
std::vector<float> rectangle(const std::vector<float>& matrix,
                             std::int64_t columns,
                             const Region& region) {
  std::vector<float> elements;
  for (std::int64_t i = region.start[0]; i < region.start[0] + region.shape[0]; ++i) {
    for (std::int64_t j = region.start[1]; j < region.start[1] + region.shape[1]; ++j) {
      elements.push_back(matrix[static_cast<std::size_t>(i * columns + j)]);
    }
  }
  return elements;
}

Tensor view(const std::vector<float>& values, const Shape& shape) {
  return {const_cast<float*>(values.data()), DType::f32, shape};
}

std::string hash_of(const std::string& path) {
  return hex_text(xxh3(MappedFile(path).bytes()));
}

}  // namespace

TEST_CASE("a checkpoint gives back every bit and every document") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("runs/imported");  // the parent is created
  SmallState state;
  const std::uint32_t quiet_nan = 0x7fc12345U;
  std::memcpy(&state.table[3], &quiet_nan, sizeof quiet_nan);
  write_checkpoint(path + "/", state.contents(7));

  Checkpoint checkpoint(path);
  checkpoint.verify();
  REQUIRE(checkpoint.step() == 7);
  REQUIRE(checkpoint.documents().model == R"({"layers":2,"hidden":64})");
  REQUIRE(checkpoint.documents().data == R"({"consumed_sequences":320,"epochs":[1]})");
  REQUIRE(checkpoint.documents().rng.empty());
  REQUIRE(checkpoint.tensors().size() == 3);
  REQUIRE(read_file(checkpoint.file("tokenizer.json")) == "{\"type\": \"byte\"}\n");
  std::vector<float> table(60);
  checkpoint.read("weights/wte.weight", Tensor(table.data(), DType::f32, {12, 5}));
  REQUIRE(
      std::ranges::equal(std::as_bytes(std::span(table)), std::as_bytes(std::span(state.table))));
  std::vector<float> moment(7);
  checkpoint.read("adam_m/ln_f.bias", Tensor(std::span(moment)));
  REQUIRE(moment == state.moment);
  REQUIRE(names_in(path) == std::vector<std::string>{"adam_m-00000.safetensors",
                                                     "manifest.json",
                                                     "tokenizer.json",
                                                     "weights-00000.safetensors"});
  REQUIRE(names_in(directory.file("runs")) == std::vector<std::string>{"imported"});
}

TEST_CASE("a tensor in pieces over several files reads as one, whole or any rectangle") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  SmallState state;
  // Rows 0 to 3, then the left two and the right three columns of the rest.
  const std::vector<float> top = rectangle(state.table, 5, {{0, 0}, {4, 5}});
  const std::vector<float> left = rectangle(state.table, 5, {{4, 0}, {8, 2}});
  const std::vector<float> right = rectangle(state.table, 5, {{4, 2}, {8, 3}});
  CheckpointContents contents = state.contents(1);
  const Shape logical{12, 5};
  contents.tensors = {{"weights/wte.weight", view(right, {8, 3}), {4, 2}, logical},
                      {"weights/wte.weight", view(top, {4, 5}), {0, 0}, logical},
                      {"weights/wte.weight", view(left, {8, 2}), {4, 0}, logical}};
  write_checkpoint(path, contents, 90);  // bytes a shard: one piece each

  Checkpoint checkpoint(path);
  checkpoint.verify();
  REQUIRE(fs::exists(path + "/weights-00002.safetensors"));
  std::vector<float> table(60);
  checkpoint.read("weights/wte.weight", Tensor(table.data(), DType::f32, logical));
  REQUIRE(table == state.table);
  std::vector<float> part(10);
  const Tensor memory(part.data(), DType::f32, {5, 2});
  const LocalPlace place{memory.shape(), whole_region(memory.shape())};
  checkpoint.read_part("weights/wte.weight", {{2, 1}, {5, 2}}, memory, place);
  REQUIRE(part == rectangle(state.table, 5, {{2, 1}, {5, 2}}));
  REQUIRE_THROWS_AS(checkpoint.read_part("weights/wte.weight", {{9, 1}, {5, 2}}, memory, place),
                    FileError);
}

TEST_CASE("state of several workers is told apart") {
  const TemporaryDirectory directory;
  SmallState state;
  CheckpointContents contents = state.contents(1);
  contents.tensors = {
      {.name = "residual/data_gradient/b", .data = Tensor(std::span(state.bias)), .worker = 0},
      {.name = "residual/data_gradient/b", .data = Tensor(std::span(state.moment)), .worker = 1}};
  write_checkpoint(directory.file("a"), contents);
  Checkpoint checkpoint(directory.file("a"));
  std::vector<float> values(7);
  checkpoint.read("residual/data_gradient/b", Tensor(std::span(values)), 1);
  REQUIRE(values == state.moment);
  checkpoint.read("residual/data_gradient/b", Tensor(std::span(values)), 0);
  REQUIRE(values == state.bias);
  REQUIRE_THROWS_WITH(checkpoint.read("residual/data_gradient/b", Tensor(std::span(values)), 2),
                      Contains("has no pieces of worker 2"));
}

TEST_CASE("another model's checkpoint is refused tensor by tensor") {
  const TemporaryDirectory directory;
  SmallState state;
  write_checkpoint(directory.file("a"), state.contents(1));
  Checkpoint checkpoint(directory.file("a"));
  std::vector<float> values(64);
  REQUIRE_THROWS_AS(checkpoint.read("weights/wte.weight", Tensor(std::span(values))), FileError);
  REQUIRE_THROWS_WITH(
      checkpoint.read("weights/wte.weight", Tensor(values.data(), DType::f32, {16, 4})),
      Contains("/a: tensor 'weights/wte.weight': expected f32 (16, 4); the checkpoint has f32 "
               "(12, 5)"));
  REQUIRE_THROWS_WITH(checkpoint.read("weights/wpe.weight", Tensor(std::span(values))),
                      Contains("no tensor 'weights/wpe.weight'"));
  REQUIRE_THROWS_WITH(checkpoint.file("merges.txt"), Contains("has no file merges.txt"));
}

TEST_CASE("a flipped bit anywhere in any file is refused with file and both hashes") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  SmallState state;
  write_checkpoint(path, state.contents(1));
  for (const std::string& name : names_in(path)) {
    if (name == kManifestName) {
      continue;
    }
    const std::string file = fmt::format("{}/{}", path, name);
    for (const std::size_t offset : {std::size_t{1}, fs::file_size(file) - 2}) {
      const std::string before = hash_of(file);
      flip_bit(file, offset);
      CHECK_THAT(
          refusal(path),
          Equals(fmt::format(
              "{}: damaged: manifest.json says XXH3 {}; got {}", file, before, hash_of(file))));
      flip_bit(file, offset);
    }
  }
  CHECK_THAT(refusal(path), Equals("accepted"));
}

TEST_CASE("a flipped bit anywhere in the manifest is refused") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  SmallState state;
  write_checkpoint(path, state.contents(1));
  const std::string manifest = path + "/manifest.json";
  const std::string text = read_file(manifest);
  for (std::size_t offset = 0; offset < text.size(); ++offset) {
    std::string damaged = text;
    damaged[offset] = static_cast<char>(damaged[offset] ^ 1);
    CAPTURE(offset, text[offset], damaged[offset]);
    CHECK_THROWS_AS(parse_manifest(damaged, manifest), FileError);
  }
  flip_bit(manifest, text.find("320") + 1);  // consumed_sequences
  CHECK_THAT(refusal(path), Contains(manifest + ": xxh3: damaged: the text has XXH3"));
}

TEST_CASE("missing and truncated files are refused when a checkpoint is opened") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  SmallState state;
  write_checkpoint(path, state.contents(1));
  const std::string shard = path + "/weights-00000.safetensors";
  const auto bytes = fs::file_size(shard);
  fs::resize_file(shard, bytes - 1);
  CHECK_THAT(refusal(path), Contains(shard + ": truncated: manifest.json says"));
  fs::resize_file(shard, bytes + 1);
  CHECK_THAT(refusal(path), Contains(shard + ": too long"));
  fs::remove(shard);
  CHECK_THAT(refusal(path), Contains(shard) && Contains("no such file"));
  fs::remove(path + "/manifest.json");
  CHECK_THAT(refusal(path), Contains("manifest.json: cannot open: No such file"));
  CHECK_THAT(refusal(directory.file("none")), Contains("none/manifest.json: cannot open"));
}

TEST_CASE("a manifest that does not fit its files is refused when they are read") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  SmallState state;
  write_checkpoint(path, state.contents(1));
  Manifest manifest = parse_manifest(read_file(path + "/manifest.json"), path);
  auto entry = manifest.tensors.extract("weights/ln_f.bias");
  entry.key() = "weights/ln_g.bias";
  manifest.tensors.insert(std::move(entry));
  write_file_atomically(path + "/manifest.json", manifest_text(manifest));
  Checkpoint checkpoint(path);
  std::vector<float> values(7);
  REQUIRE_THROWS_WITH(checkpoint.read("weights/ln_g.bias", Tensor(std::span(values))),
                      Contains("weights-00000.safetensors: tensor 'weights/ln_g.bias'") &&
                          Contains("f32 (7); the file has none"));
}

TEST_CASE("the SHA-256 of the weights is that of the documented text, whatever the pieces") {
  const TemporaryDirectory directory;
  SmallState state;
  write_checkpoint(directory.file("a"), state.contents(1));
  Sha256 expected;
  const auto add = [&](std::string_view heading, std::span<const float> values) {
    expected.update(std::as_bytes(std::span(heading)));
    expected.update(std::as_bytes(values));
  };
  add("ln_f.bias\n7\n", state.bias);
  add("wte.weight\n12,5\n", state.table);
  const std::string digest = expected.hex_digest();
  Checkpoint checkpoint(directory.file("a"));
  REQUIRE(logical_weights_sha256(checkpoint) == digest);

  CheckpointContents halves = state.contents(1);
  const Tensor table = halves.tensors[0].data;
  halves.tensors[0] = {"weights/wte.weight", table.rows(5, 12), {5, 0}, Shape{12, 5}};
  halves.tensors.push_back({"weights/wte.weight", table.rows(0, 5), {0, 0}, Shape{12, 5}});
  write_checkpoint(directory.file("b"), halves);
  Checkpoint in_halves(directory.file("b"));
  REQUIRE(logical_weights_sha256(in_halves) == digest);
}

TEST_CASE("what a manifest claims beyond its shards is refused before there is room for it") {
  const TemporaryDirectory directory;
  SmallState state;
  write_checkpoint(directory.file("a"), state.contents(1));
  const std::string path = directory.file("a/manifest.json");
  nlohmann::ordered_json manifest = nlohmann::ordered_json::parse(read_file(path));
  nlohmann::ordered_json& bias = manifest["tensors"]["weights/ln_f.bias"];
  constexpr std::int64_t kHuge = std::int64_t{1} << 45U;  // 2^47 bytes
  bias["shape"] = {kHuge};
  bias["pieces"][0]["shape"] = {kHuge};
  manifest.erase("xxh3");
  write_file_atomically(path, manifest.dump());
  Checkpoint checkpoint(directory.file("a"));
  REQUIRE_THROWS_AS(logical_weights_sha256(checkpoint), FileError);
}

}  // namespace slackline
