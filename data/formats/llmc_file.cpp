#include <algorithm>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/sequence_cut.h"
#include "data/formats/token_file.h"

namespace slackline {
namespace {

constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::size_t kVersionOffset = 4;
constexpr std::size_t kCountOffset = 8;

struct Kind {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  TokenWidth width = TokenWidth::two;
};

constexpr Kind kGpt2{.magic = 20240520, .version = 1, .width = TokenWidth::two};
constexpr Kind kLlama3{.magic = 20240801, .version = 7, .width = TokenWidth::four};

std::optional<Kind> kind_by_magic(std::int32_t magic) {
  for (const Kind& kind : {kGpt2, kLlama3}) {
    if (kind.magic == magic) {
      return kind;
    }
  }
  return std::nullopt;
}

class LlmcFile final : public TokenFile {
 public:
  LlmcFile(const std::string& path, std::int64_t vocabulary) : file_(path) {
    read_header();
    sequence_length_ = stored_sequence_length(num_tokens());
    tokens_.require_below(vocabulary, path, kHeaderBytes);
  }

  [[nodiscard]] const std::string& path() const override { return file_.path(); }

  [[nodiscard]] std::uint64_t num_sequences() const override {
    return (num_tokens() + sequence_length_ - 1) / sequence_length_;
  }

  [[nodiscard]] std::uint64_t sequence_start(std::uint64_t sequence) const override {
    SL_CHECK(sequence <= num_sequences(), "sequence beyond the file");
    return std::min(sequence * sequence_length_, num_tokens());
  }

 private:
  void read_header() {
    const std::size_t size = file_.bytes().size();
    if (size < kHeaderBytes) {
      throw FileError(fmt::format(
          "{}: truncated: the header has {} bytes, got {}", path(), kHeaderBytes, size));
    }
    const std::optional<Kind> kind = kind_by_magic(value_at<std::int32_t>(file_.bytes(), 0));
    if (!kind) {
      throw FileError(fmt::format("{}: offset 0: wrong magic: {} or {} is expected, got {}",
                                  path(),
                                  kGpt2.magic,
                                  kLlama3.magic,
                                  value_at<std::int32_t>(file_.bytes(), 0)));
    }
    if (const std::int32_t version = value_at<std::int32_t>(file_.bytes(), kVersionOffset);
        version != kind->version) {
      throw FileError(fmt::format("{}: offset {}: version {} is expected, got {}",
                                  path(),
                                  kVersionOffset,
                                  kind->version,
                                  version));
    }
    const std::int32_t count = value_at<std::int32_t>(file_.bytes(), kCountOffset);
    const auto width = static_cast<std::int64_t>(kind->width);
    const std::int64_t expected = static_cast<std::int64_t>(kHeaderBytes) + count * width;
    if (count < 0 || static_cast<std::int64_t>(size) != expected) {
      throw FileError(
          fmt::format("{}: truncated or inconsistent: {} tokens make a file of {} bytes, got {}",
                      path(),
                      count,
                      expected,
                      size));
    }
    tokens_ = TokenArray(file_.bytes().subspan(kHeaderBytes), kind->width);
  }

  MappedFile file_;
  std::uint64_t sequence_length_ = 0;
};

}  // namespace

std::unique_ptr<TokenFile> open_llmc_file(const std::string& path, std::int64_t vocabulary) {
  return std::make_unique<LlmcFile>(path, vocabulary);
}

bool is_llmc_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::int32_t magic = 0;
  file.read(reinterpret_cast<char*>(&magic), sizeof magic);
  return file.gcount() == sizeof magic && kind_by_magic(magic).has_value();
}

}  // namespace slackline
