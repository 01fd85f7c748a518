#pragma once

#include <string>

#include "core/file_io.h"
#include "data/formats/token_array.h"
#include "data/formats/token_file.h"

namespace slackline {

// A token file of llm.c: 256 little-endian i32 (magic, version, number of tokens, zeros), then the
// tokens. GPT-2's have magic 20240520, version 1 and u16; LLaMA-3's 20240801, 7 and u32.
//
// The format knows no documents. The tokens are read as sequences of stored_sequence_length()
// (data/formats/sequence_cut.h), so that they can be split and shuffled.
class LlmcFile final : public TokenFile {
 public:
  LlmcFile(const std::string& path, std::int64_t vocabulary);

  [[nodiscard]] const std::string& path() const override { return file_.path(); }

  [[nodiscard]] std::uint64_t num_tokens() const override { return tokens_.size(); }

  [[nodiscard]] std::uint64_t num_sequences() const override;
  [[nodiscard]] std::uint64_t sequence_start(std::uint64_t sequence) const override;
  void read(std::uint64_t position, std::span<TokenId> tokens) const override;

 private:
  void read_header();

  MappedFile file_;
  TokenArray tokens_;
  std::uint64_t sequence_length_ = 0;
};

// Whether the file begins with the magic of an llm.c token file.
[[nodiscard]] bool is_llmc_file(const std::string& path);

}  // namespace slackline
