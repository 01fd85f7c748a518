#include "data/tokenizers/sentencepiece_training.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <sentencepiece_trainer.h>
#include <unordered_map>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/documents.h"
#include "data/tokenizers/utf8.h"

namespace slackline {
namespace {

constexpr std::uint64_t kTrainingBytes = std::uint64_t{256} << 20U;

// A text for training is cut at any line break or space: no piece that is learnt holds a line
// break, nor a space after another character.
std::size_t after_last_space(std::string_view text) {
  const std::size_t position = text.find_last_of(" \n");
  return position == std::string_view::npos || position == 0 ? 0 : position;
}

// The lines of all inputs, one at a time, every `stride`-th of them.
class LineIterator final : public sentencepiece::SentenceIterator {
 public:
  LineIterator(const std::vector<std::string>& inputs, std::uint64_t stride)
      : inputs_(inputs), stride_(stride) {
    advance();
  }

  [[nodiscard]] bool done() const override { return done_; }

  void Next() override { advance(); }  // NOLINT(readability-identifier-naming): the library's name

  [[nodiscard]] const std::string& value() const override { return line_; }

  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

  // What was thrown while reading: the library is not written for exceptions.
  void rethrow_failure() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void advance() {
    try {
      do {
        done_ = !read_line();
      } while (!done_ && (line_.empty() || line_number_++ % stride_ != 0));
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }

  // Takes the next line of the current piece into line_; false at the end of the last input. Of a
  // longer one than the library can take as one word a part: up to its last space, which begins
  // the word behind it, or to the end of a character.
  bool read_line() {
    while (rest_.empty()) {
      if (!next_piece()) {
        return false;
      }
    }
    const std::size_t found = rest_.substr(0, kLongestWord + 1).find('\n');
    const std::size_t end = std::min(found, rest_.size());
    if (end > kLongestWord) {
      const std::size_t space = rest_.rfind(' ', kLongestWord);
      std::size_t cut = kLongestWord;
      while (!begins_character(rest_[cut])) {
        --cut;
      }
      cut = space == std::string_view::npos || space == 0 ? cut : space;
      line_ = rest_.substr(0, cut);
      rest_ = rest_.substr(cut);
      return true;
    }
    line_ = rest_.substr(0, end);
    rest_ = rest_.substr(std::min(end + 1, rest_.size()));
    return true;
  }

  // The library keeps a place in a word in 16 bits of a signed number: behind the character 2^15 it
  // reads memory that is none of the word's.
  static constexpr std::size_t kLongestWord = 32000;  // bytes

  bool next_piece() {
    while (true) {
      if (reader_ == nullptr) {
        if (next_input_ == inputs_.size()) {
          return false;
        }
        reader_ = open_documents(inputs_[next_input_++], after_last_space);
      }
      if (const std::optional<DocumentPiece> piece = reader_->next()) {
        rest_ = piece->text;
        return true;
      }
      reader_.reset();
    }
  }

  const std::vector<std::string>& inputs_;
  std::uint64_t stride_;
  std::size_t next_input_ = 0;
  std::unique_ptr<DocumentReader> reader_;
  std::string_view rest_;  // of the reader's piece
  std::string line_;
  std::uint64_t line_number_ = 0;
  bool done_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::string train_sentencepiece(const std::vector<std::string>& inputs,
                                std::int64_t vocabulary_size) {
  LineIterator lines(inputs, 1 + total_bytes(inputs) / kTrainingBytes);
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"split_digits", "true"},
      {"max_sentence_length", "1073741824"},  // lines longer than this would be left out
      {"num_threads", "1"},                   // the same model on every machine
      {"minloglevel", "2"},                   // errors only
  };
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
  lines.rethrow_failure();
  if (!status.ok()) {
    throw ConfigError(
        fmt::format("--train-sentencepiece: no vocabulary of this size can be learnt from the text "
                    "({}); got {}",
                    status.ToString(),
                    vocabulary_size));
  }
  return model;
}

}  // namespace slackline
