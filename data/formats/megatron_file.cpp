#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/file_io.h"
#include "data/formats/megatron_format.h"
#include "data/formats/token_file.h"

namespace slackline {
namespace {

std::uint64_t offsets_at(std::uint64_t sequences) {
  return megatron::kArraysOffset + sizeof(std::int32_t) * sequences;
}

std::uint64_t boundaries_at(std::uint64_t sequences) {
  return offsets_at(sequences) + sizeof(std::int64_t) * sequences;
}

std::string_view name_of_code(std::uint8_t code) {
  constexpr std::array<std::string_view, 9> kNames = {"none",
                                                      "u8",
                                                      "i8",
                                                      "i16",
                                                      "i32",
                                                      "i64",
                                                      "f64 (f32 in GPT-NeoX's files)",
                                                      "f32 (f64 in GPT-NeoX's files)",
                                                      "u16"};
  return code < kNames.size() ? kNames[code] : "unknown";
}

class MegatronFile final : public TokenFile {
 public:
  // Checks all of the index and every token (see open_token_file).
  MegatronFile(const std::string& prefix, std::int64_t vocabulary)
      : idx_(prefix + ".idx"), bin_(prefix + ".bin") {
    read_header();
    check_sequences();
    check_documents();
    tokens_.require_below(vocabulary, bin_.path(), 0);
  }

  [[nodiscard]] const std::string& path() const override { return bin_.path(); }

  [[nodiscard]] std::uint64_t num_sequences() const override { return num_sequences_; }

  [[nodiscard]] std::uint64_t sequence_start(std::uint64_t sequence) const override {
    SL_CHECK(sequence <= num_sequences_, "sequence beyond the file");
    if (sequence == num_sequences_) {
      return num_tokens();
    }
    const auto offset = value_at<std::int64_t>(
        idx_.bytes(), offsets_at(num_sequences_) + sizeof(std::int64_t) * sequence);
    return static_cast<std::uint64_t>(offset) / static_cast<std::uint64_t>(tokens_.width());
  }

 private:
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& what) const {
    throw FileError(fmt::format("{}: offset {}: {}", idx_.path(), offset, what));
  }

  void read_header() {
    using namespace megatron;  // NOLINT(google-build-using-namespace): the format this file reads
    const std::uint64_t size = idx_.bytes().size();
    if (size < kMagic.size() ||
        std::memcmp(idx_.bytes().data(), kMagic.data(), kMagic.size()) != 0) {
      refuse(0, "wrong magic: a Megatron index begins with \"MMIDIDX\" and two NULs");
    }
    if (size < kArraysOffset) {
      refuse(size, fmt::format("truncated: the header has {} bytes", kArraysOffset));
    }
    if (const auto version = value_at<std::uint64_t>(idx_.bytes(), kVersionOffset);
        version != kVersion) {
      refuse(kVersionOffset, fmt::format("version {} is expected, got {}", kVersion, version));
    }
    tokens_ = TokenArray(bin_.bytes(), read_width());
    num_sequences_ = value_at<std::uint64_t>(idx_.bytes(), kSequencesOffset);
    num_boundaries_ = value_at<std::uint64_t>(idx_.bytes(), kBoundariesOffset);
    // Compared by division first: counts of a broken file may overflow the sizes made from them.
    const bool plausible = num_sequences_ <= size / 12 && num_boundaries_ <= size / 8;
    const std::uint64_t expected =
        plausible ? boundaries_at(num_sequences_) + sizeof(std::int64_t) * num_boundaries_ : 0;
    if (!plausible || (size != expected && size != expected + num_sequences_)) {
      refuse(size,
             fmt::format(
                 "truncated or inconsistent: {} sequences and {} document boundaries do not make "
                 "a file of {} bytes",
                 num_sequences_,
                 num_boundaries_,
                 size));
    }
  }

  [[nodiscard]] TokenWidth read_width() const {
    const auto code = value_at<std::uint8_t>(idx_.bytes(), megatron::kTypeOffset);
    switch (static_cast<megatron::TokenType>(code)) {
      case megatron::TokenType::u16:
        return TokenWidth::two;
      case megatron::TokenType::i32:
        return TokenWidth::four;
      case megatron::TokenType::i64:
        return TokenWidth::eight;
    }
    refuse(megatron::kTypeOffset,
           fmt::format(
               "tokens are u16 (8), i32 (4) or i64 (5); got {} ({})", name_of_code(code), code));
  }

  void check_sequences() const {
    const auto width = static_cast<std::uint64_t>(tokens_.width());
    std::uint64_t expected = 0;
    for (std::uint64_t s = 0; s < num_sequences_; ++s) {
      const std::uint64_t length_offset = megatron::kArraysOffset + sizeof(std::int32_t) * s;
      const auto length = value_at<std::int32_t>(idx_.bytes(), length_offset);
      if (length < 0) {
        refuse(length_offset, fmt::format("sequence {} has a negative length: {}", s, length));
      }
      const std::uint64_t offset_offset = offsets_at(num_sequences_) + sizeof(std::int64_t) * s;
      const auto offset = value_at<std::int64_t>(idx_.bytes(), offset_offset);
      if (offset < 0 || static_cast<std::uint64_t>(offset) != expected) {
        refuse(offset_offset,
               fmt::format(
                   "sequence {} begins at byte {} of the .bin by the lengths before it; got {}",
                   s,
                   expected,
                   offset));
      }
      expected += static_cast<std::uint64_t>(length) * width;
    }
    if (bin_.bytes().size() != expected) {
      throw FileError(
          fmt::format("{}: truncated or of another index: {} describes {} bytes, got {}",
                      bin_.path(),
                      idx_.path(),
                      expected,
                      bin_.bytes().size()));
    }
  }

  void check_documents() const {
    const std::uint64_t start = boundaries_at(num_sequences_);
    if (num_boundaries_ == 0) {
      refuse(megatron::kBoundariesOffset, "at least one document boundary is expected, got none");
    }
    std::int64_t before = 0;
    for (std::uint64_t d = 0; d < num_boundaries_; ++d) {
      const std::uint64_t offset = start + sizeof(std::int64_t) * d;
      const auto boundary = value_at<std::int64_t>(idx_.bytes(), offset);
      const bool last = d + 1 == num_boundaries_;
      if (boundary < before || (d == 0 && boundary != 0) ||
          (last && static_cast<std::uint64_t>(boundary) != num_sequences_)) {
        refuse(offset,
               fmt::format("document boundaries rise from 0 to {}; boundary {} is {}",
                           num_sequences_,
                           d,
                           boundary));
      }
      before = boundary;
    }
  }

  MappedFile idx_;
  MappedFile bin_;
  std::uint64_t num_sequences_ = 0;
  std::uint64_t num_boundaries_ = 0;
};

}  // namespace

std::unique_ptr<TokenFile> open_megatron_file(const std::string& prefix, std::int64_t vocabulary) {
  return std::make_unique<MegatronFile>(prefix, vocabulary);
}

}  // namespace slackline
