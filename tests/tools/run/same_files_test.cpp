// Hosts that do not hold the same data or checkpoints are refused at the start. Ranks in two
// directories, where relative paths lead to other files, stand for hosts.

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

// A run whose two data ranks see data and checkpoints of their own, which are copies at first.
class TwoHosts {
 public:
  TwoHosts() {
    for (const std::string host : {"here", "there"}) {
      std::filesystem::create_directories(run.path(host));
      for (const std::string suffix : {".bin", ".idx", ".tokenizer.json"}) {
        const std::string name = "corpus" + suffix;
        std::filesystem::copy_file(run.path(name), run.path(host) + "/" + name);
      }
    }
  }

  [[nodiscard]] ProcessResult train(const std::vector<std::string>& assignments,
                                    const std::vector<std::string>& options = {}) const {
    const std::vector<std::string> arguments = run.arguments(
        with({"parallel.data=2", "run.eval_every=0", "data.train.0.path=corpus"}, assignments),
        options);
    MpiJob job(run.path("notes"),
               {{.arguments = arguments, .directory = run.path("here")},
                {.arguments = arguments, .directory = run.path("there")}});
    return job.wait();
  }

  void copy_there(const std::string& from, const std::string& to) const {
    std::filesystem::remove_all(run.path("there/" + to));
    std::filesystem::copy(from, run.path("there/" + to), std::filesystem::copy_options::recursive);
  }

  // Code 2, one message, which begins with the file and names the other rank.
  void require_refused(const ProcessResult& result, const std::string& file) const {
    INFO(result.error);
    REQUIRE(result.exit_code == 2);
    REQUIRE(count_lines(result.error, " error ") == 1);
    REQUIRE_THAT(result.error, Contains(file + ": all hosts must start from the same; host "));
    REQUIRE_THAT(result.error, Contains("(rank 1) has "));
    REQUIRE_FALSE(std::filesystem::exists(run.run_dir()));
  }

  TrainingRun run;
};

}  // namespace

TEST_CASE("hosts with other data are refused with 2, which names file and host") {
  const TwoHosts hosts;
  const std::string there = hosts.run.path("there/corpus.bin");
  const std::string whole = read_file(there);

  std::string changed = whole;
  changed.back() = changed.back() == 'a' ? 'b' : 'a';
  write_file_atomically(there, changed);
  hosts.require_refused(hosts.train({}), "corpus.bin");
  write_file_atomically(there, whole.substr(0, whole.size() / 2));
  hosts.require_refused(hosts.train({}), "corpus.bin");
  std::filesystem::remove(there);
  hosts.require_refused(hosts.train({}), "corpus.bin");
  write_file_atomically(there, whole);

  const std::string index = hosts.run.path("there/corpus.idx");
  const std::string good = read_file(index);
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() + 1);
  write_file_atomically(index, bad);
  hosts.require_refused(hosts.train({}), "corpus.idx");
  write_file_atomically(index, good);

  require_done(hosts.train({}));
}

TEST_CASE("hosts with other weights or another step to go on from are refused with 2") {
  const TwoHosts hosts;
  for (const std::string name : {"one", "two"}) {
    REQUIRE(
        hosts.run
            .train({"run.dir=" + hosts.run.path(name), name == "one" ? "run.seed=1" : "run.seed=2"})
            .exit_code == 0);
  }
  std::filesystem::copy(hosts.run.checkpoint(6, "one"), hosts.run.path("here/start"));
  const std::vector<std::string> init = {"checkpoint.init_from=start"};
  hosts.copy_there(hosts.run.checkpoint(6, "two"), "start");
  hosts.require_refused(hosts.train(init), "start/manifest.json");
  hosts.copy_there(hosts.run.checkpoint(6, "one"), "start");
  require_done(hosts.train(with(init, {"run.dir=" + hosts.run.path("copies")})));

  hosts.copy_there(hosts.run.checkpoint(3, "one"), "start");
  const ProcessResult other_step =
      hosts.train({"checkpoint.resume_from=start", "run.steps=8", "run.seed=1"});
  hosts.require_refused(other_step, "start");
  REQUIRE_THAT(other_step.error, Contains("has step 3") && Contains("has step 6"));

  std::filesystem::copy(
      hosts.run.path("one"), hosts.run.path("here/own"), std::filesystem::copy_options::recursive);
  hosts.copy_there(hosts.run.path("one"), "own");
  std::filesystem::remove_all(hosts.run.path("there/own/checkpoints/step-00000006"));
  hosts.require_refused(hosts.train({"run.dir=own", "run.steps=8", "run.seed=1"}, {"--resume"}),
                        "own/checkpoints");
}

}  // namespace slackline
