#pragma once

#include <string>

#include "core/file_io.h"
#include "data/formats/token_array.h"
#include "data/formats/token_file.h"

namespace slackline {

// PREFIX.bin with PREFIX.idx (data/formats/megatron_format.h), as Megatron, and we, write them.
class MegatronFile final : public TokenFile {
 public:
  // Checks all of the index and every token (see open_token_file).
  MegatronFile(const std::string& prefix, std::int64_t vocabulary);

  [[nodiscard]] const std::string& path() const override { return bin_.path(); }

  [[nodiscard]] std::uint64_t num_tokens() const override { return tokens_.size(); }

  [[nodiscard]] std::uint64_t num_sequences() const override { return num_sequences_; }

  [[nodiscard]] std::uint64_t sequence_start(std::uint64_t sequence) const override;
  void read(std::uint64_t position, std::span<TokenId> tokens) const override;

 private:
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& what) const;
  void read_header();
  [[nodiscard]] TokenWidth read_width() const;
  void check_sequences() const;
  void check_documents() const;

  MappedFile idx_;
  MappedFile bin_;
  TokenArray tokens_;
  std::uint64_t num_sequences_ = 0;
  std::uint64_t num_boundaries_ = 0;
};

}  // namespace slackline
