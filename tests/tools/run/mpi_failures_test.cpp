// Under mpirun, when a rank dies, hangs or fails: the others end soon and say what they waited for,
// nothing is left behind, and the last checkpoint still loads.

#include <algorithm>
#include <csignal>
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

// All ranks end within this time of a failure, or of the timeout.
constexpr double kEndSeconds = 5.0;
constexpr double kTimeoutSeconds = 2.0;

// Steps of so many micro-batches that a signal which follows a line of metrics.jsonl finds all
// ranks in their passes, far from the end of the step, where they agree and add up.
const std::vector<std::string> kEndless = {"model.layers=4",
                                           "batch.global=256",
                                           "batch.micro=1",
                                           "run.steps=100000",
                                           "run.eval_every=0",
                                           "network.timeout_seconds=2",
                                           "parallel.tensor=2",
                                           "parallel.pipeline=2"};

// Data ranks in two groups that share out weights, gradients and moments over all of them: passes
// wait for gathers and sums that go through the groups, one way or the other by their sizes.
const std::vector<std::string> kEndlessInGroups = {"model.layers=4",
                                                   "batch.global=256",
                                                   "batch.micro=1",
                                                   "run.steps=100000",
                                                   "run.eval_every=0",
                                                   "network.timeout_seconds=2",
                                                   "parallel.data=4",
                                                   "parallel.group=2",
                                                   "parallel.data_strategy=zero3",
                                                   "network.collectives=hierarchical"};

std::string newest_checkpoint(const TrainingRun& run) {
  std::string newest;
  for (const auto& entry : std::filesystem::directory_iterator(run.run_dir() + "/checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.rfind("step-", 0) == 0) {
      newest = std::max(newest, entry.path().string());
    }
  }
  return newest;
}

// The newest checkpoint is whole, and a run on another layout goes on from it.
void require_goes_on(const TrainingRun& run) {
  const std::string newest = newest_checkpoint(run);
  REQUIRE_FALSE(newest.empty());
  REQUIRE_FALSE(run.weights_sha256(newest).empty());
  const int step = std::stoi(newest.substr(newest.rfind('-') + 1));
  require_done(run.train({"model.layers=4",
                          "batch.global=256",
                          "batch.micro=1",
                          "run.eval_every=0",
                          "run.steps=" + std::to_string(step + 1)},
                         {"--resume"}));
}

// Four ranks that train on after the first checkpoint.
std::unique_ptr<MpiJob> train_until_saved(const TrainingRun& run,
                                          int save_every = 2,
                                          std::vector<std::string> assignments = kEndless) {
  assignments.push_back("run.save_every=" + std::to_string(save_every));
  std::unique_ptr<MpiJob> job =
      start_mpi(run, {{.count = 4, .arguments = run.arguments(assignments, {})}}, 4);
  wait_until([&] { return !newest_checkpoint(run).empty(); });
  return job;
}

// The same, and now at the begin of a step that is far from a save, in which ranks wait for files.
std::unique_ptr<MpiJob> train_beyond_save(const TrainingRun& run,
                                          const std::vector<std::string>& assignments = kEndless) {
  std::unique_ptr<MpiJob> job = train_until_saved(run, 10, assignments);
  const auto steps = [&] {
    return count_lines(read_file(run.run_dir() + "/metrics.jsonl"), "\"grad_norm\": ");
  };
  const auto saved = steps();
  wait_until([&] { return steps() >= saved + 3 && steps() % 10 < 8; });
  return job;
}

// Every survivor ended with 4 and said what it waited for.
void require_ends_explained(const MpiJob& job, const std::string& messages, int victim) {
  CHECK(job.all_ended_with(4, victim));
  for (int rank = 0; rank < job.num_ranks(); ++rank) {
    INFO("rank " << rank);
    if (rank != victim) {
      CHECK(count_lines(messages, "error rank " + std::to_string(rank) + ": world rank") == 1);
    }
  }
}

// As above; the messages name operation, stage, micro-batch and peer.
void require_explained(const MpiJob& job, const std::string& messages, int victim) {
  INFO(messages);
  require_ends_explained(job, messages, victim);
  CHECK_THAT(messages, Contains(", stage "));
  CHECK_THAT(messages, Contains(", micro-batch "));
  CHECK_THAT(messages,
             Catch::Matches("[^]*(receive|all_reduce|all_gather)[^\n]* of "
                            "[^\n]*waiting for world ranks? [^\n]*[^]*"));
}

// As above for ranks that wait for collectives alone; somebody waits for the victim.
void require_explained_in_groups(const MpiJob& job, const std::string& messages, int victim) {
  INFO(messages);
  require_ends_explained(job, messages, victim);
  CHECK_THAT(messages,
             Catch::Matches("[^]*(all_reduce|reduce_scatter|all_gather) of [^\n]*waiting for world "
                            "ranks? [^\n:]*" +
                            std::to_string(victim) + "[^]*"));
}

}  // namespace

TEST_CASE("when a rank is killed the others end soon with 4, explained, and the run goes on") {
  const TrainingRun run;
  const std::unique_ptr<MpiJob> job = train_beyond_save(run);
  job->signal_rank(2, SIGKILL);
  CHECK(job->seconds_until_gone(kEndSeconds) < kEndSeconds);
  const ProcessResult result = job->wait();
  REQUIRE(result.exit_code == 128 + SIGKILL);
  require_explained(*job, result.error, 2);
  require_goes_on(run);
}

TEST_CASE("when a rank is stopped the others time out with 4, explained, and no process is left") {
  const TrainingRun run;
  const std::unique_ptr<MpiJob> job = train_beyond_save(run);
  job->signal_rank(1, SIGSTOP);
  constexpr double kLimit = kTimeoutSeconds + kEndSeconds;
  CHECK(job->seconds_until_gone(kLimit) < kLimit);
  const ProcessResult result = job->wait();
  REQUIRE(result.exit_code == 4);
  require_explained(*job, result.error, 1);
  CHECK_THAT(result.error, Contains("no answer within 2"));
  require_goes_on(run);
}

TEST_CASE("a killed rank ends those that wait for it in gathers and sums through groups") {
  const TrainingRun run;
  const std::unique_ptr<MpiJob> job = train_beyond_save(run, kEndlessInGroups);
  job->signal_rank(2, SIGKILL);
  CHECK(job->seconds_until_gone(kEndSeconds) < kEndSeconds);
  const ProcessResult result = job->wait();
  REQUIRE(result.exit_code == 128 + SIGKILL);
  require_explained_in_groups(*job, result.error, 2);
  require_goes_on(run);
}

TEST_CASE("a stopped rank ends those that wait for it in gathers and sums through groups") {
  const TrainingRun run;
  const std::unique_ptr<MpiJob> job = train_beyond_save(run, kEndlessInGroups);
  job->signal_rank(3, SIGSTOP);
  constexpr double kLimit = kTimeoutSeconds + kEndSeconds;
  CHECK(job->seconds_until_gone(kLimit) < kLimit);
  const ProcessResult result = job->wait();
  REQUIRE(result.exit_code == 4);
  require_explained_in_groups(*job, result.error, 3);
  CHECK_THAT(result.error, Contains("no answer within 2"));
  require_goes_on(run);
}

TEST_CASE("a rank that cannot write its shard ends all with 3, named, and the run goes on") {
  const TrainingRun run;
  const std::unique_ptr<MpiJob> job = train_until_saved(run);
  job->limit_file_size(3, 1000);
  const ProcessResult result = job->wait();
  INFO(result.error);
  REQUIRE(result.exit_code == 3);
  REQUIRE(job->all_ended_with(3));
  REQUIRE(count_lines(result.error, " error ") == 1);
  REQUIRE_THAT(result.error, Contains("rank 3") && Contains("File too large"));
  require_goes_on(run);
}

TEST_CASE("a rank that throws ends with its own code, the others with 4 and its reason") {
  const TrainingRun run;
  // Long before the next checkpoint, metrics.jsonl cannot grow.
  const std::unique_ptr<MpiJob> job = train_until_saved(run, 10);
  job->limit_file_size(0, 10);
  const ProcessResult result = job->wait();
  INFO(result.error);
  REQUIRE(result.exit_code == 3);
  CHECK(job->all_ended_with(4, 0));
  REQUIRE_THAT(result.error, Contains("error rank 0: ") && Contains("metrics.jsonl"));
  for (int rank = 1; rank < job->num_ranks(); ++rank) {
    INFO("rank " << rank);
    CHECK(count_lines(result.error, "error rank " + std::to_string(rank) + ": world rank") == 1);
  }
  CHECK(count_lines(result.error, "world rank 0 failed: ") > 0);
  require_goes_on(run);
}

}  // namespace slackline
