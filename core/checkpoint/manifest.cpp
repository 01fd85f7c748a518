#include "core/checkpoint/manifest.h"

#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/json_reader.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNoHash = "0000000000000000";  // where the text's own will stand
constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::boolean) + 1;

std::array<std::string_view, kNumDTypes> dtype_names() {
  std::array<std::string_view, kNumDTypes> names{};
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = name_of(static_cast<DType>(i));
  }
  return names;
}

// The documents with their keys, in the order in which the manifest shows them.
struct DocumentKey {
  std::string_view key;
  std::string CheckpointDocuments::*text;
};

constexpr DocumentKey kModelKey = {"model", &CheckpointDocuments::model};
constexpr std::array<DocumentKey, 6> kOtherKeys = {{{"data", &CheckpointDocuments::data},
                                                    {"rng", &CheckpointDocuments::rng},
                                                    {"tokenizer", &CheckpointDocuments::tokenizer},
                                                    {"codec", &CheckpointDocuments::codec},
                                                    {"plan", &CheckpointDocuments::plan},
                                                    {"layout", &CheckpointDocuments::layout}}};

void write_document(Json& json, const DocumentKey& document, const CheckpointDocuments& texts) {
  const std::string& text = texts.*document.text;
  json[std::string(document.key)] = text.empty() ? Json(nullptr) : parse_strict_json(text);
}

Json piece_json(const ManifestPiece& piece) {
  const auto dims = piece.region.shape.dims();
  Json json = {{"file", piece.file},
               {"start", piece.region.start},
               {"shape", std::vector<std::int64_t>(dims.begin(), dims.end())}};
  if (piece.worker) {
    json["worker"] = *piece.worker;
  }
  return json;
}

Json tensor_json(const ManifestTensor& tensor) {
  const auto dims = tensor.shape.dims();
  Json json = {{"shape", std::vector<std::int64_t>(dims.begin(), dims.end())},
               {"dtype", name_of(tensor.dtype)},
               {"pieces", Json::array()}};
  for (const ManifestPiece& piece : tensor.pieces) {
    json["pieces"].push_back(piece_json(piece));
  }
  return json;
}

Shape read_shape(JsonReader& reader) {
  const auto dims = reader.integers("shape", {.min = 0});
  std::size_t bytes = sizeof(double);  // the widest element
  bool overflow = dims.size() > Shape::kMaxRank;
  for (const std::int64_t dim : dims) {
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::size_t>(dim), &bytes);
  }
  if (overflow) {
    reader.fail("shape",
                fmt::format("must have at most {} dimensions and 2^61 elements", Shape::kMaxRank));
  }
  return Shape(std::span<const std::int64_t>(dims));
}

ManifestPiece read_piece(JsonReader reader,
                         const ManifestTensor& tensor,
                         const Manifest& manifest) {
  ManifestPiece piece;
  piece.file = reader.string("file");
  if (!manifest.files.contains(piece.file)) {
    reader.fail("file", "must be listed under files");
  }
  piece.region.start = reader.integers("start", {.min = 0});
  piece.region.shape = read_shape(reader);
  if (!is_inside(piece.region, tensor.shape)) {
    reader.fail("start", "the piece must lie inside the tensor " + tensor.shape.to_string());
  }
  if (reader.has("worker")) {
    piece.worker = reader.integer("worker", {.min = 0});
  }
  reader.finish();
  return piece;
}

// The pieces of each worker add up to the tensor and none overlaps another: so there is no hole.
void check_coverage(const JsonReader& reader, const ManifestTensor& tensor) {
  std::map<std::optional<std::int64_t>, std::size_t> covered;
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
    const ManifestPiece& piece = tensor.pieces[i];
    covered[piece.worker] += piece.region.shape.num_elements();
    for (std::size_t j = 0; j < i; ++j) {
      if (tensor.pieces[j].worker == piece.worker &&
          intersection(tensor.pieces[j].region, piece.region)) {
        reader.fail("pieces", fmt::format("pieces {} and {} overlap", j, i));
      }
    }
  }
  for (const auto& [worker, elements] : covered) {
    if (elements != tensor.shape.num_elements()) {
      reader.fail("pieces", "pieces must cover the tensor without holes");
    }
  }
  if (covered.empty()) {
    reader.fail("pieces", "a tensor needs at least one piece");
  }
}

ManifestTensor read_tensor(JsonReader reader, const Manifest& manifest) {
  static const auto kNames = dtype_names();
  ManifestTensor tensor;
  tensor.shape = read_shape(reader);
  tensor.dtype = static_cast<DType>(reader.choice("dtype", kNames));
  for (const JsonReader& piece : reader.sections("pieces")) {
    tensor.pieces.push_back(read_piece(piece, tensor, manifest));
  }
  check_coverage(reader, tensor);
  reader.finish();
  return tensor;
}

std::uint64_t read_hash(JsonReader& reader) {
  constexpr int kBase = 16;
  std::uint64_t hash = 0;
  const std::string digits = reader.string("xxh3");
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, hash, kBase);
  if (digits.size() != kNoHash.size() || parsed.ec != std::errc{} || parsed.ptr != end) {
    reader.fail("xxh3", "must be 16 hexadecimal digits");
  }
  return hash;
}

ManifestFile read_file_entry(JsonReader reader) {
  ManifestFile file;
  file.bytes = static_cast<std::size_t>(reader.integer("bytes", {.min = 0}));
  file.xxh3 = read_hash(reader);
  reader.finish();
  return file;
}

// Compares the text with the hash it carries: a digit that flipped would else pass for another.
void check_own_hash(JsonReader& reader, std::string text) {
  if (!reader.has("xxh3")) {
    return;
  }
  const std::uint64_t expected = read_hash(reader);
  const std::size_t digits = text.rfind(hex_text(expected));
  if (digits != std::string::npos) {
    text.replace(digits, kNoHash.size(), kNoHash);
  }
  const std::uint64_t hash = xxh3(std::as_bytes(std::span(text)));
  if (hash != expected) {
    reader.fail("xxh3", "damaged: the text has XXH3 " + hex_text(hash));
  }
}

Manifest read_manifest(JsonReader reader, std::string_view text) {
  if (reader.integer("format") != kManifestFormat) {
    reader.fail("format", fmt::format("this program reads format {}", kManifestFormat));
  }
  check_own_hash(reader, std::string(text));
  Manifest manifest;
  manifest.step = reader.integer("step", {.min = 0});
  manifest.documents.model = reader.json(kModelKey.key);
  if (manifest.documents.model.empty()) {
    reader.fail("model", "is required");
  }
  JsonReader files = reader.section("files");
  for (const std::string& name : files.keys()) {
    if (!is_file_name(name)) {
      files.fail(name, "must be the name of a file in the same directory");
    }
    manifest.files.emplace(name, read_file_entry(files.section(name)));
  }
  JsonReader tensors = reader.section("tensors");
  for (const std::string& name : tensors.keys()) {
    manifest.tensors.emplace(name, read_tensor(tensors.section(name), manifest));
  }
  for (const DocumentKey& document : kOtherKeys) {
    manifest.documents.*document.text = reader.json(document.key);
  }
  reader.finish();
  return manifest;
}

}  // namespace

std::string piece_key(std::string_view tensor,
                      const Shape& logical,
                      const Region& region,
                      std::optional<std::int64_t> worker) {
  std::string key(tensor);
  if (!is_whole(region, logical)) {
    for (std::size_t i = 0; i < region.start.size(); ++i) {
      key.append(i == 0 ? "@" : ",").append(std::to_string(region.start[i]));
    }
  }
  return worker ? key + "#" + std::to_string(*worker) : key;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name != kManifestName &&
         name.find_first_of("/\\") == std::string_view::npos;
}

std::string manifest_text(const Manifest& manifest) {
  Json json = Json::object();
  json["format"] = kManifestFormat;
  json["step"] = manifest.step;
  write_document(json, kModelKey, manifest.documents);
  auto& tensors = (json["tensors"] = Json::object()).get_ref<Json::object_t&>();
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.push_back({name, tensor_json(tensor)});
  }
  json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) {
    json["files"][name] = {{"bytes", file.bytes}, {"xxh3", hex_text(file.xxh3)}};
  }
  for (const DocumentKey& document : kOtherKeys) {
    write_document(json, document, manifest.documents);
  }
  json["xxh3"] = kNoHash;
  std::string text = json.dump(1) + "\n";
  const std::string hash = hex_text(xxh3(std::as_bytes(std::span(text))));
  return text.replace(text.rfind(kNoHash), kNoHash.size(), hash);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  try {
    return read_manifest(JsonReader::parse(text, "not a manifest"), text);
  } catch (const ConfigError& error) {
    throw FileError(path + ": " + error.what());
  }
}

}  // namespace slackline
