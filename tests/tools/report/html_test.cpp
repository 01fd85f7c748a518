#include "tools/report/html.h"

#include "tests/support/catch.h"

namespace slackline::report {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

}  // namespace

TEST_CASE("what means something in HTML is escaped, in text and in attributes") {
  CHECK(text_of("<script>&\"'</script>").str() == "&lt;script&gt;&amp;&quot;&#39;&lt;/script&gt;");
  CHECK(element("p", {{"title", "a\" onclick=\"b"}}, text_of("x<y")).str() ==
        "<p title=\"a&quot; onclick=&quot;b\">x&lt;y</p>");
  CHECK(text_element("td", "&amp;").str() == "<td>&amp;amp;</td>");
}

TEST_CASE("letters of all languages stay") {
  const std::string text = "grün, größer, 学習, \xF0\x9F\x98\x80, \xED\x9F\xBF, \xEE\x80\x80";
  CHECK(text_of(text).str() == text);
}

TEST_CASE("bytes that are no UTF-8, and control characters, are replaced") {
  const std::vector<std::string> wrong = {
      "\x80", "\xFF", "\xC3", "\x01", "\r", "\x7F", std::string(1, '\0')};
  for (const std::string& text : wrong) {
    INFO(static_cast<int>(static_cast<unsigned char>(text[0])));
    CHECK(text_of(text).str() == kReplacement);
  }
  // Overlong, a surrogate, beyond the last code point, cut before another letter.
  CHECK(text_of("\xC0\xBC").str() == std::string(kReplacement) + kReplacement);
  CHECK(text_of("\xE0\x80\xBC").str() == std::string(kReplacement) + kReplacement + kReplacement);
  CHECK(text_of("\xED\xA0\x80").str() == std::string(kReplacement) + kReplacement + kReplacement);
  CHECK(text_of("\xF4\x90\x80\x80").str().size() == 12);
  CHECK(text_of("\xE5\xAD<").str() == std::string(kReplacement) + kReplacement + "&lt;");
  CHECK(text_of("a\tb\nc").str() == "a\tb\nc");
}

TEST_CASE("a table escapes its names and cells, and numbers stand to the right") {
  const std::string html = table({{"<a>"}, {"n", Align::right}}, {{"<b>", "1"}}).str();
  CHECK(html ==
        "<div class=\"scroll\"><table><thead><tr><th>&lt;a&gt;</th><th class=\"number\">n</th></tr>"
        "</thead><tbody><tr><td>&lt;b&gt;</td><td "
        "class=\"number\">1</td></tr></tbody></table></div>");
}

}  // namespace slackline::report
