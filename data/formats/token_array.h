#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "data/tokenizers/tokenizer.h"

namespace slackline {

// Returns the value at a byte offset, which need not be aligned.
template <typename T>
[[nodiscard]] T value_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// How a file stores a token: as an unsigned number of two bytes, or a signed one of four or eight.
// (llm.c's four bytes are unsigned; no vocabulary reaches 2^31, so that makes no difference.)
enum class TokenWidth : std::uint8_t { two = 2, four = 4, eight = 8 };

// Little-endian numbers in mapped bytes. Nothing is said about their alignment.
class TokenArray {
 public:
  TokenArray() = default;

  TokenArray(std::span<const std::byte> bytes, TokenWidth width) : bytes_(bytes), width_(width) {}

  [[nodiscard]] TokenWidth width() const { return width_; }

  [[nodiscard]] std::uint64_t size() const {
    return bytes_.size() / static_cast<std::uint64_t>(width_);
  }

  // Copies tokens.size() tokens from `position` on. REQUIRES: they are in the array.
  void read(std::uint64_t position, std::span<TokenId> tokens) const;

  // Throws FileError for the first token that is negative or not below `vocabulary`, with its
  // value, position and byte offset in the file `path`, where the array begins at `array_offset`.
  void require_below(std::int64_t vocabulary,
                     const std::string& path,
                     std::uint64_t array_offset) const;

 private:
  std::span<const std::byte> bytes_;
  TokenWidth width_ = TokenWidth::two;
};

}  // namespace slackline
