// Under mpirun, whatever a user can get wrong ends on every rank with the documented code and one
// message; where ranks can agree on the reason nothing is created.

#include <filesystem>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/mpi_job.h"

namespace slackline {

using Catch::Contains;
using testing::require_done;

namespace {

// Ends with `code` on the launcher and every rank, with one message, which holds `message`.
void require_refusal(MpiJob job, int code, const std::string& message) {
  const ProcessResult result = job.wait();
  INFO(result.error);
  REQUIRE(result.exit_code == code);
  REQUIRE(job.all_ended_with(code));
  REQUIRE_THAT(result.error, Contains(message));
  REQUIRE(count_lines(result.error, " error ") == 1);
}

// All ranks alike.
MpiJob start(const TrainingRun& run,
             int ranks,
             const std::vector<std::string>& assignments,
             const std::vector<std::string>& options = {}) {
  return {run.path("notes"), {{.count = ranks, .arguments = run.arguments(assignments, options)}}};
}

bool has_run(const TrainingRun& run) {
  return std::filesystem::exists(run.run_dir());
}

}  // namespace

TEST_CASE("a world that does not fit the mesh is refused with one message and creates nothing") {
  const TrainingRun run;
  require_refusal(start(run, 3, {"parallel.data=2"}), 2, "number of ranks = 3; got 1 x 1 x 2 = 2");
  require_refusal(start(run, 2, {}), 2, "mpirun -np 1");
  REQUIRE_FALSE(has_run(run));
}

TEST_CASE("collectives through the groups of one node are refused with one message") {
  const TrainingRun run;
  require_refusal(start(run, 2, {"parallel.data=2", "network.collectives=hierarchical"}),
                  2,
                  "network.collectives: must be \"auto\" or \"direct\"");
  REQUIRE_FALSE(has_run(run));
}

TEST_CASE("ranks with different configs are refused with one message and create nothing") {
  const TrainingRun run;
  const std::vector<std::string> one = run.arguments({"parallel.data=2"}, {});
  const std::vector<std::string> other =
      run.arguments({"parallel.data=2", "optimizer.lr=1e-4"}, {});
  require_refusal(MpiJob(run.path("notes"), {{.arguments = one}, {.arguments = other}}),
                  2,
                  "rank 1 has another config");
  REQUIRE_FALSE(has_run(run));
}

TEST_CASE("a rank whose config is invalid ends all with 2") {
  const TrainingRun run;
  const std::vector<std::string> one = run.arguments({"parallel.data=2"}, {});
  const std::vector<std::string> wrong = run.arguments({"parallel.data=2", "model.hiden=3"}, {});
  MpiJob job(run.path("notes"), {{.arguments = one}, {.arguments = wrong}});
  const ProcessResult result = job.wait();
  INFO(result.error);
  REQUIRE(result.exit_code == 2);
  REQUIRE(job.all_ended_with(2));
  REQUIRE(count_lines(result.error, "model.hiden") == 1);
  REQUIRE_FALSE(has_run(run));
}

TEST_CASE("--ranks is refused by processes that mpirun started as several") {
  const TrainingRun run;
  MpiJob job = start(run, 2, {"parallel.data=2"}, {"--ranks", "2"});
  testing::require_refusal(job.wait(), 2, "--ranks");
  REQUIRE_FALSE(has_run(run));
}

TEST_CASE("missing data and an occupied run directory are refused with one message") {
  const TrainingRun run;
  require_refusal(
      start(run,
            4,
            {"parallel.data=2", "parallel.pipeline=2", "data.train.0.path=" + run.path("missing")}),
      3,
      "missing");
  REQUIRE_FALSE(has_run(run));
  REQUIRE(run.train().exit_code == 0);
  const std::string metrics = read_file(run.run_dir() + "/metrics.jsonl");
  require_refusal(start(run, 2, {"parallel.data=2"}), 3, "--resume");
  REQUIRE(read_file(run.run_dir() + "/metrics.jsonl") == metrics);
}

TEST_CASE("a rank that does not see the run directory of rank 0 is named with one message") {
  const TrainingRun run;
  std::filesystem::create_directories(run.path("here"));
  std::filesystem::create_directories(run.path("there"));
  const std::vector<std::string> same = run.arguments({"parallel.data=2", "run.dir=run"}, {});
  require_refusal(MpiJob(run.path("notes"),
                         {{.arguments = same, .directory = run.path("here")},
                          {.arguments = same, .directory = run.path("there")}}),
                  3,
                  "rank 1 on node 0 does not see");
}

TEST_CASE("a loss that is not finite stops all ranks with 5 and one message naming a tensor") {
  const TrainingRun run;
  const std::vector<std::string> explode = {"optimizer.lr=1e30",
                                            "optimizer.clip_norm=0",
                                            "optimizer.warmup_steps=0",
                                            "batch.micro=2",
                                            "parallel.tensor=2",
                                            "parallel.pipeline=2"};
  require_refusal(start(run, 4, explode), 5, "step 2: stopped before the update: the gradient of");
  REQUIRE_FALSE(std::filesystem::exists(run.checkpoint(6)));

  std::vector<std::string> skip = explode;
  skip.insert(skip.end(), {"run.on_nonfinite=skip", "run.dir=" + run.path("skip")});
  const ProcessResult skipped = require_done(run_mpi(run, 4, skip));
  REQUIRE(count_lines(skipped.out, "skipped: not finite") == 5);
  REQUIRE(std::filesystem::exists(run.checkpoint(6, "skip")));
}

}  // namespace slackline
