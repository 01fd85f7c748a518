#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/json_reader.h"
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

// Other formats' files share these parts with tokenizer.json.

// The tokens of an object {token: id}, which may be empty. Throws FileError, which `where` starts.
[[nodiscard]] std::vector<std::string> tokens_by_id(const nlohmann::ordered_json& object,
                                                    const std::string& where);

// "left right"; nothing where that is not two tokens. Tokens hold no white space: GPT-2's spelling
// writes it with other characters.
[[nodiscard]] std::optional<std::pair<std::string, std::string>> merge_of(std::string_view text);

// Throws ConfigError.
[[nodiscard]] AddedToken read_added_token(JsonReader& entry);

// The token that "eos_token" names in a file beside the vocabulary; nothing where there is no such
// file or key. Throws FileError.
[[nodiscard]] std::optional<std::string> end_of_text_in(const std::string& path);

}  // namespace slackline
