#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/input_file.h"
#include "data/tokenizers/tokenizer.h"

namespace slackline {

// Part of a document's text. `text` is valid UTF-8 and holds until the next call of next().
struct DocumentPiece {
  std::string_view text;
  TextPart part = TextPart::start;
  bool ends_document = false;
};

// The documents of one file as a stream: a text file is one document, a file of JSON lines (named
// .jsonl, .ndjson or .json) has one document a line, the value of its key "text"; blank lines and
// other keys are passed over. Empty documents are left out.
//
// A text file comes in pieces, so its size does not matter. Each is as long as
// stored_sequence_length() of the file's bytes (data/formats/sequence_cut.h) and ends where `split`
// says that a text may be cut; where it may not, the piece grows until it may. A line of JSON comes
// as one piece.
//
// Throws FileError with the path and the byte offset of what is not UTF-8, or with the line that is
// not a JSON object with a text.
class DocumentReader {
 public:
  using SplitPoint = std::function<std::size_t(std::string_view)>;

  explicit DocumentReader(const std::string& path) : file_(path) {}

  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;
  virtual ~DocumentReader() = default;

  // The next piece, or nothing at the end of the file.
  [[nodiscard]] virtual std::optional<DocumentPiece> next() = 0;

  [[nodiscard]] std::uint64_t bytes_read() const { return file_.bytes_read(); }

 protected:
  InputFile file_;
};

// Adds up the sizes of the files among these paths.
[[nodiscard]] std::uint64_t total_bytes(const std::vector<std::string>& paths);

[[nodiscard]] std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                                             DocumentReader::SplitPoint split);

// The two kinds, for open_documents.
[[nodiscard]] std::unique_ptr<DocumentReader> open_text_document(const std::string& path,
                                                                 DocumentReader::SplitPoint split);
[[nodiscard]] std::unique_ptr<DocumentReader> open_json_documents(const std::string& path);

}  // namespace slackline
