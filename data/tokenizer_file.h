#pragma once

#include <memory>
#include <string>

#include "data/gpt2_tokenizer.h"
#include "data/tokenizer.h"

namespace slackline {

// A tokenizer as one self-contained JSON file: PREFIX.tokenizer.json beside a data set, and the
// same bytes as tokenizer.json in every checkpoint.
//
//   {"format": "slackline-tokenizer", "version": 1, "type": "byte" | "sentencepiece" | "gpt2",
//    "vocabulary_size": 257, "end_of_text": 256,
//    "model": "<base64 of the .model file>",              sentencepiece
//    "tokens": ["!", ...], "merges": [["Ġ", "t"], ...]}    gpt2, tokens by id, null where none

[[nodiscard]] std::string tokenizer_to_json(const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json,
                                                             const std::string& source);

// Throws FileError where the file is missing, is not JSON or is not such a tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

// "<prefix>.tokenizer.json".
[[nodiscard]] std::string tokenizer_path(const std::string& prefix);

// GPT-2's two files, vocab.json and merges.txt, in `directory`.
[[nodiscard]] std::unique_ptr<Tokenizer> load_gpt2_tokenizer(const std::string& directory);

// The tokenizer that `--tokenizer byte|sentencepiece:MODEL|gpt2:DIR` names. Throws ConfigError for
// any other text.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_option(const std::string& option);

}  // namespace slackline
