#pragma once

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint/checkpoint.h"
#include "core/error.h"

namespace slackline {

// Runs `read`, which reads a document of the checkpoint's manifest, and returns what it returns.
// Throws FileError, with the manifest's path and the document's key, where it does not fit.
template <typename Read>
auto reading_document(const Checkpoint& checkpoint, std::string_view key, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw FileError(
        fmt::format("{}/{}: {}: {}", checkpoint.path(), kManifestName, key, error.what()));
  } catch (const FileError& error) {
    throw FileError(fmt::format("{}/{}: {}", checkpoint.path(), kManifestName, error.what()));
  }
}

}  // namespace slackline
