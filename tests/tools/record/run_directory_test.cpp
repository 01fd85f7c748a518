#include "tools/record/run_directory.h"

#include <filesystem>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace slackline {

TEST_CASE("a run notices that its record is not there any more, or another file") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("run");
  RunDirectory run(path);
  run.claim();
  run.start("{}", {}, 0);
  run.record_evaluation(1, 2.0);
  run.sync_record();
  SECTION("moved with its directory") {
    std::filesystem::rename(path, path + " of old");
  }
  SECTION("removed") {
    std::filesystem::remove(path + "/metrics.jsonl");
  }
  SECTION("replaced by a copy") {
    std::filesystem::copy(path + "/metrics.jsonl", path + "/copy");
    std::filesystem::rename(path + "/copy", path + "/metrics.jsonl");
  }
  CHECK_THROWS_WITH(run.sync_record(), Catch::Contains("run/metrics.jsonl: is not what this run"));
}

TEST_CASE("a trace goes when a run goes on with another layout") {
  const TemporaryDirectory directory;
  const std::string trace = directory.file("run") + "/trace.json";
  const auto start = [&](const std::string& config) {
    RunDirectory run(directory.file("run"));
    run.claim();
    run.start(config, {}, 0);
    return run;
  };
  start(R"({"parallel": {"data": 2}, "trace": true})").write("trace.json", "[]");
  static_cast<void>(start(R"({"parallel": {"data": 2}, "trace": false})"));
  CHECK(path_exists(trace));
  static_cast<void>(start(R"({"parallel": {"data": 4}, "trace": false})"));
  CHECK_FALSE(path_exists(trace));
}

}  // namespace slackline
