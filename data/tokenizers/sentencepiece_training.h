#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slackline {

// Trains a SentencePiece model on the documents of `inputs` (data/formats/documents.h) and returns
// the content of its .model file. The same files give the same model.
//
// It is a byte-pair model that keeps every text as it is: no normalization, no space added, spaces
// kept, and bytes for the characters that it does not know, so decoding gives back what was encoded
// (but for U+2581, by which the library spells spaces: it becomes one). Ids: 0 unknown, 1 <s>, 2
// </s>, then the bytes. It is trained line by line, on every n-th line where the text is larger
// than 256 MiB.
//
// Throws FileError where a file cannot be read, and ConfigError where the vocabulary does not fit
// the text.
[[nodiscard]] std::string train_sentencepiece(const std::vector<std::string>& inputs,
                                              std::int64_t vocabulary_size);

}  // namespace slackline
