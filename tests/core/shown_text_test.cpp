#include "core/shown_text.h"

#include <string>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/hostile_text.h"

namespace slackline {

TEST_CASE("letters of all languages, and backslashes, are shown as they are") {
  const std::string text =
      "grün, größer, 学習, \xF0\x9F\x98\x80, \xED\x9F\xBF, \xEE\x80\x80, \\x1b";
  CHECK(shown_line(text) == text);
  CHECK(shown_lines(text) == text);
  CHECK(shown_line(shown_line(kHostileBytes)) == shown_line(kHostileBytes));
}

TEST_CASE("control and format characters are shown as their escapes") {
  CHECK(shown_line("a\nb\tc\rd") == "a\\nb\\tc\\rd");
  CHECK(shown_lines("a\nb\tc\rd") == "a\nb\tc\\rd");
  CHECK(shown_line(std::string_view("\0\x1b\x7f", 3)) == "\\x00\\x1b\\x7f");
  CHECK(shown_line("\xC2\x9B") == "\\u009b");
  CHECK(shown_line("\xE2\x80\xAE\xE2\x80\x8B\xE2\x80\xA8\xE2\x80\xA9\xEF\xBB\xBF") ==
        "\\u202e\\u200b\\u2028\\u2029\\ufeff");
  CHECK(shown_line("\xF3\xA0\x81\x81") == "\\U000e0041");  // a tag character
}

TEST_CASE("each byte that is not UTF-8 is shown as its number") {
  // Alone, overlong, a surrogate, beyond the last code point, cut before another letter.
  CHECK(shown_line("\x80\xFF") == "\\x80\\xff");
  CHECK(shown_line("\xC0\xBC") == "\\xc0\\xbc");
  CHECK(shown_line("\xE0\x80\xBC") == "\\xe0\\x80\\xbc");
  CHECK(shown_line("\xED\xA0\x80") == "\\xed\\xa0\\x80");
  CHECK(shown_line("\xF4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(shown_line("\xE5\xAD<") == "\\xe5\\xad<");
}

TEST_CASE("every text of up to three bytes is shown without harm") {
  std::string text;
  for (unsigned value = 0; value < 1U << 16U; ++value) {
    for (const bool longer : {false, true}) {
      text.assign(longer ? 1 : 0, '\xE2');
      text.push_back(static_cast<char>(value >> 8U));
      text.push_back(static_cast<char>(value & 0xFFU));
      if (first_harm(shown_lines(text)) != std::string::npos ||
          first_harm(shown_line(text)) != std::string::npos) {
        FAIL("bytes " << value << (longer ? " after 0xe2" : ""));
      }
    }
  }
}

TEST_CASE("a long value is cut behind a whole character, and says so") {
  CHECK(shown_value(std::string(80, 'a')) == std::string(80, 'a'));
  CHECK(shown_value(std::string(81, 'a')) == std::string(80, 'a') + "...");
  CHECK(shown_value("ab\xC3\xBC"
                    "cd",
                    3) == "ab\xC3\xBC...");
  CHECK(shown_value(std::string(1 << 20, '\x1b')).size() < 100);
}

TEST_CASE("shown JSON reads back as the same values") {
  const nlohmann::json values = {{std::string(kHostileText), kHostileText},
                                 {"tag", "\xF3\xA0\x81\x81"}};
  const std::string shown = shown_json(values.dump());
  CHECK(first_harm(shown) == std::string::npos);
  CHECK(nlohmann::json::parse(shown) == values);
  CHECK(nlohmann::json::parse(shown_json("\"\xff\"")) == "\xEF\xBF\xBD");
}

TEST_CASE("the message of an error is one harmless line, and a hint a second one") {
  const FileError plain{std::string(kHostileBytes)};
  CHECK(first_harm(plain.what()) == std::string::npos);
  CHECK(std::string(plain.what()).find('\n') == std::string::npos);
  const ConfigError hinted(with_hint(std::string(kHostileBytes), std::string(kHostileBytes)));
  const std::string message = hinted.what();
  CHECK(first_harm(message) == std::string::npos);
  CHECK(message.find('\n') == message.find("\nhint: "));
  CHECK(message.find('\n', message.find('\n') + 1) == std::string::npos);
}

}  // namespace slackline
