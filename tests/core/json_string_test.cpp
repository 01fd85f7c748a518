#include "core/json_string.h"

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("strings are escaped for JSON") {
  CHECK(json_string("a\"b\\c\n\x01") == R"("a\"b\\c\u000a\u0001")");
}

}  // namespace slackline
