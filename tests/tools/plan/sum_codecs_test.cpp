#include "tools/plan/sum_codecs.h"

#include <string>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

namespace {

CompressConfig read(const std::string& section) {
  return read_compress_config(
      JsonReader::parse(R"({"compress": )" + section + "}", "run.json").section("compress"));
}

}  // namespace

TEST_CASE("sums go by levels where what codecs send grows with the ranks that send it") {
  const auto by_levels = [](const std::string& section) {
    return codes_sums_by_levels(read(section), 64);
  };
  CHECK_FALSE(by_levels(R"({"policy": "none", "data_gradient": {"codec": "cast"}})"));
  CHECK_FALSE(by_levels(R"({"policy": "all", "pipeline_backward": {"codec": "cast"}})"));
  CHECK_FALSE(by_levels(R"({"policy": "optimus_cc"})"));
  for (const char* codec : {R"("codec": "quantize", "bits": 4)",
                            R"("codec": "cast")",
                            R"("codec": "top_k", "ratio": 0.1)"}) {
    INFO(codec);
    CHECK(by_levels(R"({"policy": "all", "data_gradient": {)" + std::string(codec) + "}}"));
    CHECK_FALSE(by_levels(R"({"policy": "all", "embedding": {)" + std::string(codec) + "}}"));
    CHECK_FALSE(
        by_levels(R"({"policy": "optimus_cc", "embedding": {)" + std::string(codec) + "}}"));
  }
  CHECK_FALSE(by_levels(R"({"policy": "all", "data_gradient": {"codec": "low_rank", "rank": 4}})"));
  CHECK_FALSE(by_levels(
      R"({"policy": "all", "data_gradient": {"codec": "quantize", "bits": 2, "units": "moments"}})"));
  CHECK(by_levels(R"({"policy": "critical_path"})"));
  CHECK_FALSE(by_levels(
      R"({"policy": "critical_path", "data_gradient": {"codec": "low_rank", "rank": 4}})"));
  CHECK_FALSE(by_levels(R"({"policy": "replay", "plan": "no such plan"})"));
  const TemporaryDirectory directory;
  const std::string plan = directory.file("plan.json");
  const auto replays = [&](const std::string& codec, const std::string& reason) {
    write_file_atomically(plan,
                          R"([{"from_step": 1, "classes": [{"site": "data_gradient", "stage": 0, )"
                          R"("phase": "step", "codec": )" +
                              codec + R"(, "reason": ")" + reason + R"("}]}])");
    return by_levels(R"({"policy": "replay", "plan": ")" + plan + R"("})");
  };
  CHECK(replays(R"({"codec": "quantize", "bits": 4})", "policy all"));
  CHECK_FALSE(replays(R"({"codec": "low_rank", "rank": 4})", "policy all"));
}

}  // namespace slackline
