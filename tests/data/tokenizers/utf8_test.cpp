#include "data/tokenizers/utf8.h"

#include <string>

#include "data/tokenizers/byte_tokenizer.h"
#include "tests/data/piecewise.h"
#include "tests/support/catch.h"

namespace slackline {
namespace {

struct Case {
  std::string bytes;
  std::size_t valid = 0;
  bool truncated = false;
};

}  // namespace

TEST_CASE("UTF-8 is checked to the byte, and a cut character is told from a broken one") {
  const std::string ascii = "twenty ASCII letters";
  const Case cases[] = {
      {"", 0, false},
      {ascii, 20, false},
      {ascii + "\xc3\xa9", 22, false},
      {ascii + "\xc3", 20, true},
      {ascii + "\xe7\x81", 20, true},
      {ascii + "\xf0\x9f\x98", 20, true},
      {"\xff", 0, false},              // no character begins so
      {"a\x80", 1, false},             // nor with a continuation
      {"\xc3(", 0, false},             // a continuation is missing
      {"\xc0\xaf", 0, false},          // overlong
      {"\xe0\x80", 0, false},          // will be overlong
      {"\xed\xa0\x80", 0, false},      // a surrogate
      {"\xed\xa0", 0, false},          // will be one
      {"\xf4\x90\x80\x80", 0, false},  // beyond U+10FFFF
      {"\xf5", 0, false},
      {"\xed\x9f\xbf\xee\x80\x80", 6, false},
      {std::string("a\0b", 3), 3, false},
  };
  for (const Case& entry : cases) {
    CAPTURE(entry.bytes);
    const Utf8Check check = check_utf8(entry.bytes);
    REQUIRE(check.valid == entry.valid);
    REQUIRE(check.truncated == entry.truncated);
  }
}

TEST_CASE("characters are told apart as Unicode does") {
  REQUIRE(kind_of(U'a') == CharKind::letter);
  REQUIRE(kind_of(U'火') == CharKind::letter);
  REQUIRE(kind_of(U'7') == CharKind::number);
  REQUIRE(kind_of(U'½') == CharKind::number);
  REQUIRE(kind_of(U'\t') == CharKind::space);
  REQUIRE(kind_of(U'\u0085') == CharKind::space);
  REQUIRE(kind_of(U'\u3000') == CharKind::space);
  REQUIRE(kind_of(U'\u200b') == CharKind::other);  // zero-width space: not White_Space
  REQUIRE(kind_of(U'\x1c') == CharKind::other);
  REQUIRE(kind_of(U'_') == CharKind::other);
  REQUIRE(kind_of(U'\u0301') == CharKind::other);  // a combining accent is no letter
}

TEST_CASE("the byte tokenizer gives bytes, takes them back, and may be cut anywhere") {
  const ByteTokenizer tokenizer;
  const std::string text = "a\n\xc3\xa9";
  REQUIRE(tokenizer.encode(text) == std::vector<TokenId>{97, 10, 195, 169});
  REQUIRE(tokenizer.vocabulary_size() == 257);
  REQUIRE(tokenizer.decode(std::vector<TokenId>{97, 256, 10, 195, 169}) == text);
  REQUIRE(tokenizer.decode(std::vector<TokenId>{257, -1}) == "\xef\xbf\xbd\xef\xbf\xbd");
  REQUIRE(pieces_equal_whole(tokenizer, text));
}

}  // namespace slackline
