#include "data/formats/token_vocabulary.h"

#include <optional>

#include <fmt/format.h>

#include "core/error.h"

namespace slackline {

void require_tokens_below(std::int64_t vocabulary,
                          const TokenArray& tokens,
                          const std::string& path,
                          std::uint64_t array_offset) {
  const std::optional<std::uint64_t> position = tokens.find_beyond(vocabulary);
  if (position) {
    throw FileError(
        fmt::format("{}: offset {}: token {} at position {} is not in the vocabulary (0 to {})",
                    path,
                    array_offset + *position * static_cast<std::uint64_t>(tokens.width()),
                    tokens.at(*position),
                    *position,
                    vocabulary - 1));
  }
}

}  // namespace slackline
