#include "data/nfc.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>

#include "core/check.h"

namespace slackline {

std::string to_nfc(std::string_view text) {
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
