#pragma once

#include <string>
#include <string_view>

namespace slackline {

// Unicode's normal form C, in which a letter and its accents are one character where there is one.

// Throws FileError for a text of 2 GiB or more. REQUIRES: text is UTF-8.
[[nodiscard]] std::string to_nfc(std::string_view text);

// Whether the character stays as it is in any text, unless a later one joins it.
[[nodiscard]] bool stays_in_nfc(char32_t character);

}  // namespace slackline
