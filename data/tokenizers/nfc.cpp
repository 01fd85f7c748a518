#include "data/tokenizers/nfc.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "data/tokenizers/utf8.h"

namespace slackline {

namespace {

// ICU counts bytes in 32 bits.
constexpr std::size_t kLongest = std::numeric_limits<std::int32_t>::max();

struct Mark {
  std::string_view bytes;
  std::uint8_t combining_class = 0;
};

// The three characters that are no accents by their class and yet stand for two; no normal form has
// them (Unicode's NonStarterDecompositions, but U+0344, whose class is that of its parts).
std::string_view two_accents(char32_t character) {
  switch (character) {
    case U'\u0F73':
      return "\u0F71\u0F72";
    case U'\u0F75':
      return "\u0F71\u0F74";
    case U'\u0F81':
      return "\u0F71\u0F80";
    default:
      return {};
  }
}

// Puts runs of accents into the order that normal forms have. ICU does so itself, in time that
// grows with the square of a run's length.
std::string with_ordered_marks(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::vector<Mark> marks;
  const auto put_marks = [&] {
    if (!std::ranges::is_sorted(marks, {}, &Mark::combining_class)) {
      std::ranges::stable_sort(marks, {}, &Mark::combining_class);
    }
    for (const Mark& mark : marks) {
      result += mark.bytes;
    }
    marks.clear();
  };
  const auto put = [&](std::string_view bytes, char32_t character) {
    const std::uint8_t combining_class =
        character < 0x80 ? 0 : u_getCombiningClass(static_cast<UChar32>(character));
    if (combining_class != 0) {
      marks.push_back({.bytes = bytes, .combining_class = combining_class});
      return;
    }
    put_marks();
    result += bytes;
  };
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Char next = char_at(text, position);
    const std::string_view two = two_accents(next.value);
    if (two.empty()) {
      put(text.substr(position, next.bytes), next.value);
    }
    for (std::size_t i = 0; i < two.size(); i += 3) {  // bytes of each
      put(two.substr(i, 3), char_at(two, i).value);
    }
    position += next.bytes;
  }
  put_marks();
  return result;
}

}  // namespace

std::string to_nfc(std::string_view unordered) {
  const std::string text = with_ordered_marks(unordered);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFCInstance(error);
  SL_CHECK(U_SUCCESS(error), u_errorName(error));
  if (text.size() > kLongest) {
    throw FileError(fmt::format(
        "a document of {} bytes, which with NFC may have at most {}", text.size(), kLongest));
  }
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<std::int32_t>(text.size()));
  normalizer->normalizeUTF8(0,
                            icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                            sink,
                            nullptr,
                            error);
  SL_CHECK(U_SUCCESS(error), u_errorName(error));
  return result;
}

bool stays_in_nfc(char32_t character) {
  const auto code = static_cast<UChar32>(character);
  return character < 0x80 || (u_getIntPropertyValue(code, UCHAR_NFC_QUICK_CHECK) == UNORM_YES &&
                              u_getCombiningClass(code) == 0);
}

}  // namespace slackline
