#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "data/formats/token_array.h"

namespace slackline {

// Writes PREFIX.bin and PREFIX.idx (data/formats/megatron_format.h) as a stream: u16 where the
// vocabulary is below 65,500, else i32. Both appear under their names only when committed; until
// then what stood there stays, and a writer that is given up leaves nothing behind. Keeps four
// bytes a sequence and eight a document in memory.
class MegatronWriter {
 public:
  MegatronWriter(std::string prefix, std::int64_t vocabulary);

  // Appends tokens to the current sequence. REQUIRES: tokens are below the vocabulary.
  void append(std::span<const TokenId> tokens);
  // Throws FileError for a sequence of 2^31 tokens or more, which the format cannot hold.
  void end_sequence();
  // Ends a document with the sequences since the last call. REQUIRES: no tokens since end_sequence.
  void end_document();

  // Syncs and renames, in two steps: what belongs beside the data set is put there in between.
  // The index comes last and the old one goes first. Without it there is no data set, so a crash
  // leaves none, never one that is mixed.
  void commit_tokens();
  void commit_index();

  [[nodiscard]] std::uint64_t num_tokens() const { return num_tokens_; }

  [[nodiscard]] std::uint64_t num_documents() const { return boundaries_.size() - 1; }

 private:
  void write_index();

  std::string prefix_;
  std::int64_t vocabulary_;
  TokenWidth width_;
  FileWriter bin_;
  FileWriter idx_;
  std::uint64_t num_tokens_ = 0;
  std::uint64_t sequence_tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> boundaries_ = {0};
  std::vector<std::uint16_t> narrow_;  // tokens on their way to the file
};

}  // namespace slackline
