#include "tools/infer/conditional_entropy.h"

#include <cmath>
#include <string>

#include "core/error.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

// A cyclic sequence over {a, b} in which every window of four bytes occurs once (de Bruijn), many
// times over, so that no context of up to three bytes tells anything about the next byte.
std::string memoryless_text() {
  std::string text;
  for (int i = 0; i < 4096; ++i) {
    text += "aaaabaabbababbbb";
  }
  return text;
}

}  // namespace

TEST_CASE("a byte that is uniform over n values has entropy ln n, whatever is known before it") {
  std::string all_bytes;
  for (int i = 0; i < 256; ++i) {
    all_bytes += static_cast<char>(i);
  }
  REQUIRE(conditional_entropy(all_bytes, 0) == Approx(std::log(256.0)).epsilon(1e-12));

  const std::string text = memoryless_text();
  REQUIRE(conditional_entropy(text, 0) == Approx(std::log(2.0)).epsilon(1e-12));
  for (int order = 1; order <= kMaxEntropyOrder; ++order) {
    // Only the last few windows, which do not wrap around, are missing from the even counts.
    REQUIRE(conditional_entropy(text, order) == Approx(std::log(2.0)).epsilon(1e-6));
  }
}

TEST_CASE("a skewed byte has the entropy of its frequencies") {
  const double expected = -(0.75 * std::log(0.75) + 0.25 * std::log(0.25));
  REQUIRE(conditional_entropy("abaa", 0) == Approx(expected).epsilon(1e-12));
}

TEST_CASE(
    "a text that repeats with period p is certain from the order that tells its places apart") {
  const std::string period = "aab";  // order 1 leaves a: a or b; order 2 leaves nothing
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += period;
  }
  // 2999 windows: after an a, 1000 times a and 1000 times b; after a b always a.
  REQUIRE(conditional_entropy(text, 1) == Approx(2000.0 / 2999.0 * std::log(2.0)).epsilon(1e-12));
  REQUIRE(conditional_entropy(text, 2) == 0.0);
  REQUIRE(conditional_entropy(text, 3) == 0.0);
}

TEST_CASE("bytes above 127 and zero bytes are bytes like others in a context") {
  const std::string text{"\xff\x00\xff\x01\xff\x00\xff\x01", 8};
  // After ff: 00 or 01, twice each, of 7 windows; after 00 and 01 always ff.
  REQUIRE(conditional_entropy(text, 1) == Approx(4.0 / 7.0 * std::log(2.0)).epsilon(1e-12));
}

TEST_CASE("a text too short for one window has entropy 0, and an unknown order is refused") {
  REQUIRE(conditional_entropy("", 0) == 0.0);
  REQUIRE(conditional_entropy("ab", 2) == 0.0);
  REQUIRE_THROWS_AS(conditional_entropy("abc", 4), Error);
  REQUIRE_THROWS_AS(conditional_entropy("abc", -1), Error);
}

}  // namespace slackline
