#pragma once

#include <memory>
#include <string>

#include "data/tokenizers/byte_level_tokenizer.h"
#include "data/tokenizers/tokenizer.h"

namespace slackline {

// A tokenizer as one self-contained JSON file: PREFIX.tokenizer.json beside a data set, and the
// same bytes as tokenizer.json in every checkpoint.
//
//   {"format": "slackline-tokenizer", "version": 1, "type": "byte" | "sentencepiece" | "gpt2"
//    | "hf",
//    "vocabulary_size": 257, "end_of_text": 256,
//    "model": "<base64 of the .model file>",              sentencepiece
//    "tokens": ["!", ...], "merges": [["Ġ", "t"], ...],    gpt2 and hf, tokens by id, null
//                                                          where none
//    "special_tokens": true,                               where they are recognized in text
//    "added": [{"id":, "content":, "special":, "lstrip":, "rstrip":, "normalized":}, ...],
//    "pattern": "gpt2" | "cl100k", "nfc":, "prefix_space":, "whole_words":}    hf

[[nodiscard]] std::string tokenizer_to_json(const Tokenizer& tokenizer);

// Throws FileError, which names `source`, where the text is not JSON or is not such a tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& json,
                                                             const std::string& source);

// The same text for tokenizers with the same tokens, whether or not they recognize special tokens.
[[nodiscard]] std::string tokenizer_identity(const Tokenizer& tokenizer);

// "<prefix>.tokenizer.json".
[[nodiscard]] std::string tokenizer_path(const std::string& prefix);

// GPT-2's two files, vocab.json and merges.txt, in `directory`, with "add_prefix_space" of
// tokenizer_config.json. Logs a warning where "add_bos_token" there asks for a beginning-of-text
// token, which is passed over. Throws FileError also where added_tokens.json names other tokens, or
// special_tokens_map.json or tokenizer_config.json another end-of-text than GPT-2's.
[[nodiscard]] std::unique_ptr<Tokenizer> load_gpt2_tokenizer(
    const std::string& directory, SpecialTokens special_tokens = SpecialTokens::as_text);

// tokenizer.json in `directory` (data/formats/hugging_face_file.h).
[[nodiscard]] std::unique_ptr<Tokenizer> load_hugging_face_tokenizer(
    const std::string& directory, SpecialTokens special_tokens = SpecialTokens::as_text);

// The tokenizer that `--tokenizer byte|sentencepiece:MODEL|gpt2:DIR|hf:DIR` names. Throws
// ConfigError for any other text, and where special tokens are wanted of one that has none.
[[nodiscard]] std::unique_ptr<Tokenizer> tokenizer_from_option(
    const std::string& option, SpecialTokens special_tokens = SpecialTokens::as_text);

}  // namespace slackline
