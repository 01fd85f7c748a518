#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

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
  [[nodiscard]] virtual std::uint64_t num_tokens() const = 0;
  [[nodiscard]] virtual std::uint64_t num_sequences() const = 0;
  // REQUIRES: sequence <= num_sequences().
  [[nodiscard]] virtual std::uint64_t sequence_start(std::uint64_t sequence) const = 0;

  // Copies tokens.size() tokens from `position` on.
  // REQUIRES: position + tokens.size() <= num_tokens().
  virtual void read(std::uint64_t position, std::span<TokenId> tokens) const = 0;

  [[nodiscard]] std::uint64_t sequence_length(std::uint64_t sequence) const {
    return sequence_start(sequence + 1) - sequence_start(sequence);
  }
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

}  // namespace slackline
