#include <utility>

#include "data/formats/documents.h"
#include "data/formats/sequence_cut.h"
#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

class TextDocument final : public DocumentReader {
 public:
  TextDocument(const std::string& path, SplitPoint split)
      : DocumentReader(path),
        split_(std::move(split)),
        piece_bytes_(stored_sequence_length(file_.bytes())) {}

  [[nodiscard]] std::optional<DocumentPiece> next() override {
    buffer_.erase(0, given_);
    given_ = 0;
    // At least one character stays behind, so that the last piece can say that it is the last.
    for (std::uint64_t wanted = piece_bytes_; fill(wanted); wanted = 2 * buffer_.size()) {
      const std::size_t last = char_before(buffer_, valid_).bytes;
      given_ = split_(std::string_view(buffer_).substr(0, valid_ - last));
      if (given_ > 0) {
        return piece(EndsDocument::no);
      }
    }
    if (buffer_.empty()) {
      return std::nullopt;
    }
    if (valid_ < buffer_.size()) {  // the file ends inside a character
      file_.refuse_bytes(file_.bytes_read() - (buffer_.size() - valid_));
    }
    given_ = buffer_.size();
    return piece(EndsDocument::yes);
  }

 private:
  enum class EndsDocument { no, yes };

  // Reads until more than `wanted` bytes are there; false where the file ends before.
  bool fill(std::uint64_t wanted) {
    while (buffer_.size() <= wanted) {
      if (!file_.append_to(buffer_, wanted + 1 - buffer_.size())) {
        check();
        return false;
      }
    }
    check();
    return true;
  }

  // Only the last character of the buffer may be incomplete.
  void check() {
    const Utf8Check check = check_utf8(buffer_);
    valid_ = check.valid;
    if (valid_ < buffer_.size() && !check.truncated) {
      file_.refuse_bytes(file_.bytes_read() - (buffer_.size() - valid_));
    }
  }

  DocumentPiece piece(EndsDocument ends) {
    const TextPart part = std::exchange(part_, TextPart::continuation);
    return {.text = std::string_view(buffer_).substr(0, given_),
            .part = part,
            .ends_document = ends == EndsDocument::yes};
  }

  SplitPoint split_;
  std::uint64_t piece_bytes_;
  std::string buffer_;     // the piece given out last, then text that was read ahead
  std::size_t given_ = 0;  // bytes of that piece
  std::size_t valid_ = 0;  // bytes of whole characters in the buffer
  TextPart part_ = TextPart::start;
};

}  // namespace

std::unique_ptr<DocumentReader> open_text_document(const std::string& path,
                                                   DocumentReader::SplitPoint split) {
  return std::make_unique<TextDocument>(path, std::move(split));
}

}  // namespace slackline
