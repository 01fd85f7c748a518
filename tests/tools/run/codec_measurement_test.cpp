#include "tools/run/codec_measurement.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "tests/support/catch.h"

namespace slackline {

namespace {

CompressConfig read(const std::string& section) {
  return read_compress_config(
      JsonReader::parse(R"({"compress": )" + section + "}", "run.json").section("compress"));
}

MeshJob job_of(const ParallelConfig& parallel) {
  return {.model = {.layers = 4,
                    .hidden = 64,
                    .heads = 4,
                    .sequence = 32,
                    .vocab = 100,
                    .ffn = 256,
                    .tie_embeddings = true},
          .parallel = parallel,
          .micro_batch = {.B = 2, .T = 32},
          .num_micro_batches = 4};
}

}  // namespace

TEST_CASE("every candidate is measured once for each shape, frames of a sum as often as ranks") {
  const std::string section = R"({"policy": "critical_path",
      "pipeline_backward": {"candidates": [{"codec": "cast"}, {"codec": "low_rank", "rank": 2}]},
      "data_gradient": {"codec": "quantize", "bits": 8}})";
  const std::vector<CandidateMessage> messages =
      candidate_messages(read(section), job_of({.pipeline = 2, .data = 2}));
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
