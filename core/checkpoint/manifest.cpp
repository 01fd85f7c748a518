#include "core/checkpoint/manifest.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/manifest_json.h"
#include "core/error.h"
#include "core/file_io.h"
#include "core/hash.h"
#include "core/joined_text.h"
#include "core/json_reader.h"
#include "core/strict_json.h"

namespace slackline {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNoHash = "0000000000000000";  // where the text's own will stand

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
constexpr DocumentKey kOuterKey = {"outer", &CheckpointDocuments::outer};  // where there is one

void write_document(Json& json, const DocumentKey& document, const CheckpointDocuments& texts) {
  const std::string& text = texts.*document.text;
  json[std::string(document.key)] = text.empty() ? Json(nullptr) : parse_strict_json(text);
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
  if (reader.has("updates")) {
    manifest.updates = reader.integer("updates", {.min = 0, .max = manifest.step});
  }
  manifest.skips = reader.integer("skips", {.default_value = 0, .min = 0, .max = manifest.step});
  manifest.documents.model = reader.json(kModelKey.key);
  if (manifest.documents.model.empty()) {
    reader.fail("model", "is required");
  }
  manifest.files = read_files(reader.section("files"));
  manifest.tensors = read_tensors(reader.section("tensors"), manifest.files, Coverage::whole);
  for (const DocumentKey& document : kOtherKeys) {
    manifest.documents.*document.text = reader.json(document.key);
  }
  manifest.documents.outer = reader.json(kOuterKey.key);
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
    key.append("@").append(joined(region.start, ","));
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
  json["tensors"] = tensors_json(manifest.tensors);
  json["files"] = files_json(manifest.files);
  for (const DocumentKey& document : kOtherKeys) {
    write_document(json, document, manifest.documents);
  }
  if (!manifest.documents.outer.empty()) {
    write_document(json, kOuterKey, manifest.documents);
  }
  if (manifest.updates) {
    json["updates"] = *manifest.updates;
  }
  if (manifest.skips > 0) {
    json["skips"] = manifest.skips;
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

Manifest read_manifest(const std::string& path) {
  if (path_exists(path) && !is_regular_file(path)) {
    throw FileError(path + ": is no regular file");
  }
  return parse_manifest(read_file(path), path);
}

}  // namespace slackline
