#include "data/formats/documents.h"

#include <string_view>

namespace slackline {

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
