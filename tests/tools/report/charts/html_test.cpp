#include "tools/report/charts/html.h"

#include "core/shown_text.h"
#include "tests/support/catch.h"
#include "tests/support/hostile_text.h"

namespace slackline::report {

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

TEST_CASE("what a terminal would obey is escaped in a report, too") {
  CHECK(text_of(kHostileBytes).str() == shown_lines(kHostileBytes));
  CHECK(text_of("\xE5\xAD<").str() == "\\xe5\\xad&lt;");
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
