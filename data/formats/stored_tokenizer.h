#pragma once

#include <optional>
#include <string>

#include "data/formats/token_file.h"

namespace slackline {

// The JSON of a tokenizer (data/formats/tokenizer_file.h) and the file that it was read from, for
// messages.
struct StoredTokenizer {
  std::string path;
  std::string json;
};

// Reads the tokenizer that `prepare` wrote beside a data set. Returns nothing where there is none:
// other programs' token files come without.
[[nodiscard]] std::optional<StoredTokenizer> data_tokenizer(const TokenFile& file);

// Throws FileError, naming both files, unless both have the same tokens and cut text
// alike. Whether they recognize special tokens may differ.
void require_same_tokenizer(const StoredTokenizer& tokenizer, const StoredTokenizer& expected);

}  // namespace slackline
