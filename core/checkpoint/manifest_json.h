#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "core/checkpoint/manifest.h"
#include "core/json_reader.h"

namespace slackline {

// The "tensors" and "files" of a manifest and of one rank's part of it. Readers throw ConfigError
// with the path inside the document.

[[nodiscard]] nlohmann::ordered_json tensors_json(
    const std::map<std::string, ManifestTensor>& tensors);

[[nodiscard]] nlohmann::ordered_json files_json(const std::map<std::string, ManifestFile>& files);

[[nodiscard]] std::map<std::string, ManifestFile> read_files(JsonReader section);

// The pieces cover their tensors, or are those of one rank among others.
enum class Coverage { whole, partial };

[[nodiscard]] std::map<std::string, ManifestTensor> read_tensors(
    JsonReader section, const std::map<std::string, ManifestFile>& files, Coverage coverage);

// The key "xxh3": 16 hexadecimal digits.
[[nodiscard]] std::uint64_t read_hash(JsonReader& reader);

}  // namespace slackline
