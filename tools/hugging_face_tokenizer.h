#pragma once

#include <string>

#include "data/gpt2_tokenizer.h"

namespace slackline {

// Writes vocab.json and merges.txt as the transformers library does: what load_gpt2_tokenizer and
// the library read back. Throws FileError. REQUIRES: the directory exists.
void write_gpt2_tokenizer(const std::string& directory, const Gpt2Vocabulary& vocabulary);

}  // namespace slackline
