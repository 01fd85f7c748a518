#include "data/tokenizers/utf8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

// ICU's macros expand to int arithmetic assigned to bytes.
#pragma GCC diagnostic ignored "-Wconversion"

namespace slackline {
namespace {

constexpr std::size_t kAscii = 128;

// Letters and numbers are those of Unicode 16, as in Hugging Face's tokenizers, whichever Unicode
// the installed ICU knows (14 at least): what has come since 14 is listed here, and what came after
// 16 counts as not assigned yet.
struct KindRange {
  char32_t first = 0;
  char32_t last = 0;
  CharKind kind = CharKind::other;
};

constexpr std::array<KindRange, 45> kSinceUnicode14 = {{
    {0x1c89, 0x1c8a, CharKind::letter},   {0xa7cb, 0xa7cd, CharKind::letter},
    {0xa7da, 0xa7dc, CharKind::letter},   {0x105c0, 0x105f3, CharKind::letter},
    {0x10d40, 0x10d49, CharKind::number}, {0x10d4a, 0x10d65, CharKind::letter},
    {0x10d6f, 0x10d85, CharKind::letter}, {0x10ec2, 0x10ec4, CharKind::letter},
    {0x1123f, 0x11240, CharKind::letter}, {0x11380, 0x11389, CharKind::letter},
    {0x1138b, 0x1138b, CharKind::letter}, {0x1138e, 0x1138e, CharKind::letter},
    {0x11390, 0x113b5, CharKind::letter}, {0x113b7, 0x113b7, CharKind::letter},
    {0x113d1, 0x113d1, CharKind::letter}, {0x113d3, 0x113d3, CharKind::letter},
    {0x116d0, 0x116e3, CharKind::number}, {0x11bc0, 0x11be0, CharKind::letter},
    {0x11bf0, 0x11bf9, CharKind::number}, {0x11f02, 0x11f02, CharKind::letter},
    {0x11f04, 0x11f10, CharKind::letter}, {0x11f12, 0x11f33, CharKind::letter},
    {0x11f50, 0x11f59, CharKind::number}, {0x1342f, 0x1342f, CharKind::letter},
    {0x13441, 0x13446, CharKind::letter}, {0x13460, 0x143fa, CharKind::letter},
    {0x16100, 0x1611d, CharKind::letter}, {0x16130, 0x16139, CharKind::number},
    {0x16d40, 0x16d6c, CharKind::letter}, {0x16d70, 0x16d79, CharKind::number},
    {0x18cff, 0x18cff, CharKind::letter}, {0x1b132, 0x1b132, CharKind::letter},
    {0x1b155, 0x1b155, CharKind::letter}, {0x1ccf0, 0x1ccf9, CharKind::number},
    {0x1d2c0, 0x1d2d3, CharKind::number}, {0x1df25, 0x1df2a, CharKind::letter},
    {0x1e030, 0x1e06d, CharKind::letter}, {0x1e4d0, 0x1e4eb, CharKind::letter},
    {0x1e4f0, 0x1e4f9, CharKind::number}, {0x1e5d0, 0x1e5ed, CharKind::letter},
    {0x1e5f0, 0x1e5f0, CharKind::letter}, {0x1e5f1, 0x1e5fa, CharKind::number},
    {0x2b739, 0x2b739, CharKind::letter}, {0x2ebf0, 0x2ee5d, CharKind::letter},
    {0x31350, 0x323af, CharKind::letter},
}};

CharKind kind_since_unicode_14(char32_t character) {
  const auto* const range =
      std::ranges::upper_bound(kSinceUnicode14, character, {}, &KindRange::first);
  if (range == kSinceUnicode14.begin() || character > std::prev(range)->last) {
    return CharKind::other;
  }
  return std::prev(range)->kind;
}

CharKind unicode_kind(char32_t character) {
  const auto code = static_cast<UChar32>(character);
  UVersionInfo age{};
  u_charAge(code, age);
  constexpr std::uint8_t kListedFrom = 15;
  if (age[0] == 0 || age[0] >= kListedFrom) {
    return kind_since_unicode_14(character);
  }
  const std::uint32_t category = U_GET_GC_MASK(code);
  if ((category & U_GC_L_MASK) != 0) {
    return CharKind::letter;
  }
  if ((category & U_GC_N_MASK) != 0) {
    return CharKind::number;
  }
  return u_isUWhiteSpace(code) != 0 ? CharKind::space : CharKind::other;
}

std::array<CharKind, kAscii> ascii_kinds() {
  std::array<CharKind, kAscii> kinds{};
  for (std::size_t i = 0; i < kAscii; ++i) {
    kinds[i] = unicode_kind(static_cast<char32_t>(i));
  }
  return kinds;
}

// Bytes of ASCII at the front of `bytes` from `position`, eight at a time.
std::size_t skip_ascii(std::string_view bytes, std::size_t position) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  while (position + sizeof(std::uint64_t) <= bytes.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + position, sizeof word);
    if ((word & kHighBits) != 0) {
      break;
    }
    position += sizeof word;
  }
  return position;
}

// Whether a cut-off tail can still become a character: pads it with each extreme of the bytes that
// may follow and asks the decoder.
bool may_continue(std::string_view tail) {
  const std::size_t length = 1 + U8_COUNT_TRAIL_BYTES(static_cast<unsigned char>(tail.front()));
  if (length <= tail.size()) {
    return false;
  }
  for (const char filler : {'\x80', '\xbf'}) {
    std::string_view::size_type position = 0;
    std::array<char, 4> padded{filler, filler, filler, filler};
    std::memcpy(padded.data(), tail.data(), tail.size());
    UChar32 code = 0;
    U8_NEXT(padded.data(), position, length, code);
    if (code >= 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

Utf8Check check_utf8(std::string_view bytes) {
  std::size_t position = 0;
  while (true) {
    position = skip_ascii(bytes, position);
    if (position >= bytes.size()) {
      return {.valid = position};
    }
    const std::size_t start = position;
    UChar32 code = 0;
    U8_NEXT(bytes.data(), position, bytes.size(), code);
    if (code < 0) {
      return {.valid = start, .truncated = may_continue(bytes.substr(start))};
    }
  }
}

CharKind kind_of(char32_t character) {
  static const std::array<CharKind, kAscii> kKinds = ascii_kinds();
  return character < kAscii ? kKinds[character] : unicode_kind(character);
}

Utf8Char char_at(std::string_view text, std::size_t position) {
  const std::size_t start = position;
  UChar32 code = 0;
  U8_NEXT_UNSAFE(text.data(), position, code);
  return {.value = static_cast<char32_t>(code), .bytes = position - start};
}

Utf8Char char_before(std::string_view text, std::size_t position) {
  const std::size_t end = position;
  UChar32 code = 0;
  U8_PREV_UNSAFE(text.data(), position, code);
  return {.value = static_cast<char32_t>(code), .bytes = end - position};
}

}  // namespace slackline
