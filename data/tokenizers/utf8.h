#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slackline {

// What a buffer of bytes holds when read as UTF-8 (no surrogates, no overlong forms).
struct Utf8Check {
  std::size_t valid = 0;   // bytes of whole, valid characters at the front
  bool truncated = false;  // the rest is the beginning of a character: more bytes may complete it
};

// Checks `bytes` from the front and stops at the first byte that is not UTF-8.
[[nodiscard]] Utf8Check check_utf8(std::string_view bytes);

// Whether a byte of UTF-8 is the first one of its character.
[[nodiscard]] constexpr bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U;
}

// The four kinds of characters that tokenizers cut text by, from Unicode's general categories (L,
// N) and its White_Space property.
enum class CharKind : std::uint8_t { letter, number, space, other };

[[nodiscard]] CharKind kind_of(char32_t character);

// One character of valid UTF-8 and the bytes that it takes.
struct Utf8Char {
  char32_t value = 0;
  std::size_t bytes = 0;
};

// Decodes the character that begins at `position`. REQUIRES: text is UTF-8, position < size.
[[nodiscard]] Utf8Char char_at(std::string_view text, std::size_t position);

// Decodes the character that ends before `position`. REQUIRES: text is UTF-8, position > 0.
[[nodiscard]] Utf8Char char_before(std::string_view text, std::size_t position);

}  // namespace slackline
