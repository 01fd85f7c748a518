#pragma once

#include <cstdint>
#include <string>

#include "data/formats/token_array.h"

namespace slackline {

// Throws FileError for the first token that is not below `vocabulary`, with its value, position
// and byte offset. `array_offset` is where the tokens begin in the file.
void require_tokens_below(std::int64_t vocabulary,
                          const TokenArray& tokens,
                          const std::string& path,
                          std::uint64_t array_offset);

}  // namespace slackline
