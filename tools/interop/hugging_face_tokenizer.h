#pragma once

#include <string>

#include "data/tokenizers/byte_level_tokenizer.h"

namespace slackline {

// Writes vocab.json and merges.txt as the transformers library does: what load_gpt2_tokenizer and
// the library read back. Throws FileError. REQUIRES: the directory exists.
void write_gpt2_tokenizer(const std::string& directory, const ByteLevelVocabulary& vocabulary);

// Writes tokenizer.json and tokenizer_config.json, for tokenizers that are not GPT-2's own. The
// library's ids are then those that training used: no beginning-of-text is put before a text.
// Throws FileError. REQUIRES: the directory exists.
void write_hugging_face_tokenizer(const std::string& directory,
                                  const ByteLevelVocabulary& vocabulary);

}  // namespace slackline
