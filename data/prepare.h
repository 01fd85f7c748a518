#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/added_tokens.h"

namespace slackline {

// `slackline prepare`: turns text into a data set that `train` reads.
struct PrepareOptions {
  std::vector<std::string>
      inputs{};                    // text files and JSON lines (data/formats/documents.h), in order
  std::string tokenizer = "byte";  // byte | sentencepiece:MODEL | gpt2:DIR | hf:DIR
  SpecialTokens special_tokens = SpecialTokens::as_text;  // in the inputs' text
  std::string out{};                     // PREFIX of the .bin, .idx and .tokenizer.json
  std::int64_t train_sentencepiece = 0;  // > 0: train a model with as many pieces and write it
                                         // to the MODEL of `tokenizer`, or to PREFIX.model
                                         // where that is just "sentencepiece"
};

struct PrepareSummary {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;  // end-of-text included
  std::uint64_t text_bytes = 0;
  std::int64_t vocabulary = 0;
};

// Streams the inputs, in constant memory however long a text file is, into PREFIX.bin, .idx and
// .tokenizer.json. Each document ends with end-of-text; empty ones are left out. A line of JSON is
// one sequence; a text file is one document of as many sequences as DocumentReader gives pieces.
//
// All files appear at the end; a run that fails or is killed leaves the names as they were (at the
// worst, when killed while replacing a data set, without an index). Calls `progress`, where given,
// after every piece, with the bytes of all inputs; those of pipes count 0 in the total. Throws
// ConfigError for a wrong option and FileError for what is wrong with a file: unreadable, not
// UTF-8, no text at all, no place to write to.
PrepareSummary prepare(
    const PrepareOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

}  // namespace slackline
