#include "data/formats/documents.h"

#include <string_view>

#include "core/file_io.h"

namespace slackline {

std::uint64_t total_bytes(const std::vector<std::string>& paths) {
  std::uint64_t bytes = 0;
  for (const std::string& path : paths) {
    bytes += is_regular_file(path) ? file_bytes(path) : 0;
  }
  return bytes;
}

std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                               DocumentReader::SplitPoint split) {
  for (const std::string_view suffix : {".jsonl", ".ndjson", ".json"}) {
    if (path.ends_with(suffix)) {
      return open_json_documents(path);
    }
  }
  return open_text_document(path, std::move(split));
}

}  // namespace slackline
