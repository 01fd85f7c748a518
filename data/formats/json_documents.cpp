#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strict_json.h"
#include "data/formats/documents.h"
#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

class JsonDocuments final : public DocumentReader {
 public:
  using DocumentReader::DocumentReader;

  [[nodiscard]] std::optional<DocumentPiece> next() override {
    std::uint64_t line_start = file_.bytes_read();
    while (file_.read_line(line_)) {
      ++line_number_;
      if (const Utf8Check check = check_utf8(line_); check.valid < line_.size()) {
        file_.refuse_bytes(line_start + check.valid);
      }
      line_start = file_.bytes_read();
      if (line_.find_first_not_of(" \t\r") == std::string::npos) {
        continue;
      }
      text_ = text_of_line();
      if (!text_.empty()) {
        return DocumentPiece{.text = text_, .part = TextPart::start, .ends_document = true};
      }
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::string text_of_line() const {
    // The library takes a NUL byte for the end of the text and would not look behind it.
    if (line_.find('\0') != std::string::npos) {
      refuse("not JSON: NUL byte");
    }
    try {
      const nlohmann::ordered_json line = parse_strict_json(line_);
      const auto text = line.is_object() ? line.find("text") : line.end();
      if (!line.is_object() || text == line.end() || !text->is_string()) {
        refuse("a JSON object with a string 'text' is expected on every line");
      }
      return text->get<std::string>();
    } catch (const JsonSyntaxError& error) {
      refuse(fmt::format("not JSON: {}", error.what()));
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError(fmt::format("{}: line {}: {}", file_.path(), line_number_, what));
  }

  std::string line_;
  std::string text_;
  std::uint64_t line_number_ = 0;
};

}  // namespace

std::unique_ptr<DocumentReader> open_json_documents(const std::string& path) {
  return std::make_unique<JsonDocuments>(path);
}

}  // namespace slackline
