#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slackline {

// A name that clears a screen, turns text around, moves the cursor with one of the controls beyond
// ASCII, hides a character and begins a line of its own; UTF-8, as JSON wants it. Its first letters
// are harmless, so that a message can be searched for it.
inline constexpr std::string_view kHostileText =
    "hostile\x1b[2J\xe2\x80\xae\xc2\x9b\xe2\x80\x8b\r\nerror forged";

// The same and bytes that are not UTF-8, as a file name or an argument may hold them.
inline constexpr std::string_view kHostileBytes =
    "hostile\x1b[2J\xe2\x80\xae\xc2\x9b\xe2\x80\x8b\r\nerror forged\xff\xc3(";

// The byte at which `text` holds what a terminal obeys or does not show: control characters but
// line breaks and tabs, direction marks and the other format characters of general punctuation,
// bytes that are not UTF-8. npos where there is none. Decodes by itself, apart from the product.
[[nodiscard]] inline std::size_t first_harm(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || i + length > text.size()) {
      return i;
    }
    char32_t point = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xC0U) != 0x80U) {
        return i;
      }
      point = (point << 6U) | (byte & 0x3FU);
    }
    const bool control =
        (point < 0x20 && point != '\n' && point != '\t') || (point >= 0x7F && point < 0xA0);
    const bool format =
        (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
        (point >= 0x2060 && point <= 0x206F && point != 0x2065) || point == 0xFEFF || point == 0xAD;
    if (control || format) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace slackline
