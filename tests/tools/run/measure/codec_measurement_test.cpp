#include "tools/run/measure/codec_measurement.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tools/plan/planned_job.h"

namespace slackline {

TEST_CASE("every candidate is measured once for each shape, frames of a sum as often as ranks") {
  const PlanJob job = planned_job(
      {"parallel.pipeline=2",
       "parallel.data=2",
       "compress.policy=critical_path",
       R"(compress.pipeline_backward={"candidates": [{"codec": "cast"}, {"codec": "low_rank", "rank": 2}]})",
       R"(compress.data_gradient={"codec": "quantize", "bits": 8})"});
  const std::vector<CandidateMessage> messages = candidate_messages(job.compress, job.mesh);
  CHECK(std::count_if(messages.begin(), messages.end(), [](const CandidateMessage& message) {
          return message.ranks == 0;
        }) == 2);
  const std::vector<CodecTimes> times = measure_codecs(messages, 64, 1);
  REQUIRE(times.size() == messages.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].setting == messages[i].codec);
    CHECK(times[i].encode.calls == 2);
    CHECK(times[i].encode.seconds > 0.0);
    CHECK(times[i].decode.seconds > 0.0);
  }
}

}  // namespace slackline
