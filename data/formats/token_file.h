#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/formats/token_array.h"

namespace slackline {

// A read-only set of token sequences in a memory-mapped file. Tokens have positions 0 ..
// num_tokens() - 1 in file order; sequence s is the positions sequence_start(s) ..
// sequence_start(s + 1) - 1.
//
// Everything about the file was checked when it was opened, so reading cannot fail. Any number of
// threads may read.
class TokenFile {
 public:
  TokenFile() = default;
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  virtual ~TokenFile() = default;

  [[nodiscard]] virtual const std::string& path() const = 0;  // of the file that holds the tokens
  [[nodiscard]] virtual std::uint64_t num_sequences() const = 0;
  // REQUIRES: sequence <= num_sequences().
  [[nodiscard]] virtual std::uint64_t sequence_start(std::uint64_t sequence) const = 0;

  // Copies tokens.size() tokens from `position` on.
  // REQUIRES: position + tokens.size() <= num_tokens().
  void read(std::uint64_t position, std::span<TokenId> tokens) const {
    tokens_.read(position, tokens);
  }

  [[nodiscard]] std::uint64_t num_tokens() const { return tokens_.size(); }

  [[nodiscard]] std::uint64_t sequence_length(std::uint64_t sequence) const {
    return sequence_start(sequence + 1) - sequence_start(sequence);
  }

 protected:
  TokenArray tokens_;  // a view of what the derived class holds, which sets it once
};

// Every file that may belong to what a config names as data: those of Megatron's prefix, an llm.c
// token file, a tokenizer. Not all of them exist.
[[nodiscard]] std::vector<std::string> token_file_paths(const std::string& prefix_or_path);

// For files that are read without a model: every id that a TokenId holds.
constexpr std::int64_t kAnyVocabulary = std::numeric_limits<TokenId>::max();

// Whether there is something that open_token_file would open.
[[nodiscard]] bool token_file_exists(const std::string& prefix_or_path);

// Opens a prefix of Megatron's .bin and .idx (the name of either will do as well), or an llm.c
// token file, known by its first bytes. Every token is looked at once. Throws FileError, naming
// file, offset and what was expected, for files that are missing, truncated, inconsistent or of
// another kind, and for the first token that is not below `vocabulary`.
[[nodiscard]] std::unique_ptr<TokenFile> open_token_file(const std::string& prefix_or_path,
                                                         std::int64_t vocabulary = kAnyVocabulary);

// The two kinds, for open_token_file.

// PREFIX.bin with PREFIX.idx (data/formats/megatron_format.h), as Megatron, and we, write them.
[[nodiscard]] std::unique_ptr<TokenFile> open_megatron_file(const std::string& prefix,
                                                            std::int64_t vocabulary);

// A token file of llm.c: 256 little-endian i32 (magic, version, number of tokens, zeros), then the
// tokens. GPT-2's have magic 20240520, version 1 and u16; LLaMA-3's 20240801, 7 and u32. The format
// knows no documents. The tokens are read as sequences of stored_sequence_length()
// (data/formats/sequence_cut.h), so that they can be split and shuffled.
[[nodiscard]] std::unique_ptr<TokenFile> open_llmc_file(const std::string& path,
                                                        std::int64_t vocabulary);

// Whether the file begins with the magic of an llm.c token file.
[[nodiscard]] bool is_llmc_file(const std::string& path);

}  // namespace slackline
