#include "data/utf8.h"

#include <array>
#include <cstring>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

// ICU's macros expand to int arithmetic assigned to bytes.
#pragma GCC diagnostic ignored "-Wconversion"

namespace slackline {
namespace {

constexpr std::size_t kAscii = 128;

CharKind unicode_kind(char32_t character) {
  const auto code = static_cast<UChar32>(character);
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

// The bytes a character takes by its first byte; 0 where no character begins with it.
std::size_t length_from_lead(unsigned char lead) {
  if (lead < 0x80U) {
    return 1;
  }
  if (lead >= 0xc2U && lead <= 0xdfU) {
    return 2;
  }
  if ((lead & 0xf0U) == 0xe0U) {
    return 3;
  }
  return lead >= 0xf0U && lead <= 0xf4U ? 4 : 0;
}

// Whether a cut-off tail can still become a character: pads it with each extreme of the bytes that
// may follow and asks the decoder.
bool may_continue(std::string_view tail) {
  const std::size_t length = length_from_lead(static_cast<unsigned char>(tail.front()));
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
