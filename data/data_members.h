#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/formats/stored_tokenizer.h"
#include "data/formats/token_file.h"

namespace slackline {

// The part of one file that belongs to one split.
struct DataMember {
  std::shared_ptr<const TokenFile> file;  // shared: the splits of a file read the same mapping
  double weight = 1.0;
  std::string_view split;  // "training" or "validation", for messages
  std::uint64_t first_sequence = 0;
  std::uint64_t num_sequences = 0;
};

struct DataMembers {
  std::vector<DataMember> train;
  std::vector<DataMember> valid;             // empty where neither `valid` nor the split has any
  std::optional<StoredTokenizer> tokenizer;  // of the data, where a file has one
};

// Opens every file once, checks it and its tokens (open_token_file), and cuts it into splits as
// Megatron does. A member without a weight gets the samples of `sequence` tokens that an epoch of
// it has; the validation part of a file has the weight of its training part. Throws FileError, also
// for files made with different tokenizers.
[[nodiscard]] DataMembers open_data(const DataConfig& config,
                                    std::int64_t vocabulary,
                                    std::int64_t sequence);

[[nodiscard]] std::uint64_t tokens_of(const DataMember& member);

// Returns the number of the member's sequences and a hash of their lengths, which are given, and of
// their tokens, as a short text by which a run that goes on knows its data again. It does not
// depend on path, times or format. Of more than 2^20 tokens the hash takes 64 runs of 16,384,
// evenly spread, the first and the last among them.
[[nodiscard]] std::string contents_of(const DataMember& member,
                                      std::span<const std::uint32_t> lengths);

// Throws FileError for a part that is shorter than a sample of `sequence` + 1 tokens.
void require_one_sample(const DataMember& member, std::int64_t sequence);

// The first sequence of each part of `sequences`, then `sequences`: running sums of the shares,
// rounded, halves to the even number.
[[nodiscard]] std::array<std::uint64_t, 4> split_bounds(const Split& split,
                                                        std::uint64_t sequences);

}  // namespace slackline
