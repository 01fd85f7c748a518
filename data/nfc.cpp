#include "data/nfc.h"

#include <algorithm>
#include <cstdint>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <vector>

#include "core/check.h"
#include "data/utf8.h"

namespace slackline {

namespace {

struct Mark {
  std::string_view bytes;
  std::uint8_t combining_class = 0;
};

bool is_ordered(const std::vector<Mark>& marks) {
  return std::is_sorted(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
    return a.combining_class < b.combining_class;
  });
}

// Puts runs of accents into the order that normal forms have. ICU does so itself, in time that
// grows with the square of a run's length.
std::string with_ordered_marks(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::vector<Mark> marks;
  const auto put_marks = [&] {
    if (!is_ordered(marks)) {
      std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
        return a.combining_class < b.combining_class;
      });
    }
    for (const Mark& mark : marks) {
      result += mark.bytes;
    }
    marks.clear();
  };
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Char next = char_at(text, position);
    const std::string_view bytes = text.substr(position, next.bytes);
    position += next.bytes;
    const std::uint8_t combining_class =
        next.value < 0x80 ? 0 : u_getCombiningClass(static_cast<UChar32>(next.value));
    if (combining_class != 0) {
      marks.push_back({.bytes = bytes, .combining_class = combining_class});
      continue;
    }
    put_marks();
    result += bytes;
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
