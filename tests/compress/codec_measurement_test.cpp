#include "compress/codec_measurement.h"

#include <vector>

#include "tests/support/catch.h"

namespace slackline {

TEST_CASE("every candidate is measured once, as messages that are added or not") {
  const std::vector<CandidateMessage> messages = {
      {.codec = {.kind = CodecKind::cast}, .shape = {32, 16}},
      {.codec = {.rank = 2}, .shape = {32, 16}},
      {.codec = {.rank = 2}, .shape = {16, 48}, .is_added = true},
      {.codec = {.kind = CodecKind::quantize, .bits = 8}, .shape = {16, 48}, .is_added = true},
      {.codec = {.kind = CodecKind::quantize, .bits = 8}, .shape = {4096}, .is_added = true}};
  const std::vector<CodecTimes> times = measure_codecs(messages, 64, 1);
  REQUIRE(times.size() == messages.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].setting == messages[i].codec);
    CHECK(times[i].encode.calls == 1);
    CHECK(times[i].decode.calls == 1);
    CHECK(times[i].encode.seconds > 0.0);
    CHECK(times[i].decode.seconds > 0.0);
  }
  CHECK(times.back().shape == std::vector<std::int64_t>{64, 64});
}

}  // namespace slackline
