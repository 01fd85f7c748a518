#include "core/shown_text.h"

#include <cstdint>
#include <unicode/uchar.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <fmt/format.h>

namespace slackline {

namespace {

enum class Form { line, lines, json };

// A message is refused for what it holds, not for what it is: whatever is longer than this is a
// value that nobody cut.
constexpr std::size_t kLongestMessage = std::size_t{1} << 14U;

// The character at byte `next`, negative for bytes that are none, and moves `next` behind it.
UChar32 next_character(std::string_view text, std::size_t& next) {
  UChar32 character = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"  // inside ICU's macro
  U8_NEXT(text.data(), next, text.size(), character);
#pragma GCC diagnostic pop
  return character;
}

bool is_harmless(UChar32 character) {
  constexpr std::uint32_t kNotShown =
      U_GC_CC_MASK | U_GC_CF_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_CS_MASK;
  return (U_GET_GC_MASK(character) & kNotShown) == 0;
}

std::string escaped_in_json(UChar32 character) {
  constexpr UChar32 kFirstOfTwo = 0x10000;
  return character < kFirstOfTwo ? fmt::format("\\u{:04x}", character)
                                 : fmt::format("\\u{:04x}\\u{:04x}",
                                               static_cast<std::uint32_t>(U16_LEAD(character)),
                                               static_cast<std::uint32_t>(U16_TRAIL(character)));
}

std::string escaped(UChar32 character) {
  switch (character) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto number = static_cast<std::uint32_t>(character);
  return number < 0x80      ? fmt::format("\\x{:02x}", number)
         : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                            : fmt::format("\\U{:08x}", number);
}

// `text` up to about so many bytes, which end with a whole character.
std::string shown(std::string_view text, Form form, std::size_t longest) {
  const auto is_layout = [&](UChar32 character) {
    return form != Form::line && (character == '\n' || character == '\t');
  };
  std::string result;
  for (std::size_t next = 0; next < text.size();) {
    if (result.size() >= longest) {
      return result + "...";
    }
    const std::size_t first = next;
    const UChar32 character = next_character(text, next);
    const std::string_view bytes = text.substr(first, next - first);
    if (character < 0 && form == Form::json) {
      result += "\\ufffd";
    } else if (character < 0) {
      for (const char byte : bytes) {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else if (is_harmless(character) || is_layout(character)) {
      result += bytes;
    } else {
      result += form == Form::json ? escaped_in_json(character) : escaped(character);
    }
  }
  return result;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t next = 0; next < text.size();) {
    if (next_character(text, next) < 0) {
      return false;
    }
  }
  return true;
}

std::string shown_line(std::string_view text) {
  return shown(text, Form::line, kLongestMessage);
}

std::string shown_lines(std::string_view text) {
  return shown(text, Form::lines, std::string::npos);
}

std::string shown_json(std::string_view json) {
  return shown(json, Form::json, std::string::npos);
}

std::string shown_value(std::string_view value, std::size_t longest) {
  return shown(value, Form::line, longest);
}

}  // namespace slackline
