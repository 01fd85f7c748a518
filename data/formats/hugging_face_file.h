#pragma once

#include <string>
#include <string_view>

#include "data/tokenizers/byte_level_tokenizer.h"

namespace slackline {

// Reads the tokenizer.json of Hugging Face's tokenizers library: byte-level BPE whose words are cut
// by one of WordPattern's regular expressions, without a normalizer or with NFC. Everything else
// that changes ids is refused by its path in the file; what does not is passed over: truncation,
// padding, and a post-processor's template (beginning-of-text tokens), since `prepare` sets
// documents apart by end-of-text alone.
//
// `source` starts every message. Does not know the end-of-text, which tokenizer.json does not say.
// Throws FileError.
[[nodiscard]] ByteLevelVocabulary read_hugging_face_vocabulary(std::string_view json,
                                                               const std::string& source);

// The same from a directory, with the end-of-text: "eos_token" of tokenizer_config.json, or where
// there is none the token named <|endoftext|> or <|end_of_text|>.
[[nodiscard]] ByteLevelVocabulary load_hugging_face_vocabulary(const std::string& directory);

// Ids beyond this are a broken file: a vocabulary is held by id.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;

}  // namespace slackline
