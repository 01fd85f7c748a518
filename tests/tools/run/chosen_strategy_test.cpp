// Data strategies that a run chooses for itself, and keeps when it goes on.

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/support/ended.h"
#include "tests/tools/run/four_rank_links.h"
#include "tests/tools/run/training_run.h"

namespace slackline {

namespace {

using testing::require_done;

// Four ranks on so many nodes.
std::string links(const TrainingRun& run, double bytes_per_second, int nodes = 2) {
  return write_links(
      run, {.nodes = nodes, .latency_seconds = 1e-6, .bytes_per_second = bytes_per_second});
}

ProcessResult train(const TrainingRun& run,
                    const std::string& name,
                    const std::vector<std::string>& assignments) {
  return require_done(run.train(with({"run.dir=" + run.path(name),
                                      "parallel.data=4",
                                      "parallel.data_strategy=auto",
                                      "batch.global=16",
                                      "run.steps=4",
                                      "run.save_every=2",
                                      "run.eval_every=0"},
                                     assignments),
                                {"--ranks", "4"}));
}

// What the log says after the key: a name and what became of it.
std::string decision(const ProcessResult& result) {
  std::smatch found;
  const std::regex line("parallel.data_strategy: ([A-Za-z0-9]+ is (chosen|kept))");
  REQUIRE(std::regex_search(result.error, found, line));
  return found[1];
}

std::string name_in(const std::string& decision) {
  return decision.substr(0, decision.find(' '));
}

}  // namespace

TEST_CASE("a run that goes on keeps the data strategy and the micro-batch that were chosen") {
  const TrainingRun run;
  const std::string whole = decision(train(run, "whole", {links(run, 1e8)}));
  // Over slow links another strategy is faster, which adds in another order.
  const std::string slow = decision(train(run, "slow", {links(run, 1e7)}));
  REQUIRE(name_in(whole) != name_in(slow));
  REQUIRE(run.weights_sha256(run.checkpoint(4, "slow")) !=
          run.weights_sha256(run.checkpoint(4, "whole")));
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(2, "whole");
  const std::string kept = decision(train(run, "kept", {links(run, 1e7), from}));
  CHECK(kept == name_in(whole) + " is kept");
  CHECK(run.weights_sha256(run.checkpoint(4, "kept")) ==
        run.weights_sha256(run.checkpoint(4, "whole")));
  CHECK_THAT(read_file(run.path("kept") + "/config.resolved.json"),
             Catch::Contains("\"micro\": 4") &&
                 Catch::Contains("\"data_strategy\": \"" + name_in(whole) + "\""));
}

TEST_CASE("groups that a strategy takes from the nodes stand in the resolved config") {
  const TrainingRun run;
  const std::string strategy = GENERATE("parallel.data_strategy=NIG",
                                        "parallel.data_strategy=replicate\n"
                                        "network.collectives=hierarchical");
  std::vector<std::string> assignments = {links(run, 1e8)};
  std::istringstream lines(strategy);
  for (std::string line; std::getline(lines, line);) {
    assignments.push_back(line);
  }
  train(run, "run", assignments);
  CHECK_THAT(read_file(run.path("run") + "/config.resolved.json"), Catch::Contains("\"group\": 2"));
}

TEST_CASE("a run that goes on keeps groups that it took from the nodes") {
  const TrainingRun run;
  const std::string strategy = "parallel.data_strategy=NII";
  train(run, "whole", {links(run, 1e8), strategy});
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(2, "whole");
  const ProcessResult kept = train(run, "kept", {links(run, 1e8, 1), strategy, from});
  CHECK_THAT(kept.error, Catch::Contains("parallel.group: 2 is kept from "));
  CHECK(run.weights_sha256(run.checkpoint(4, "kept")) ==
        run.weights_sha256(run.checkpoint(4, "whole")));
  const ProcessResult given =
      train(run, "given", {links(run, 1e8, 1), strategy, from, "parallel.group=4"});
  CHECK_THAT(given.error, !Catch::Contains("is kept from"));
  CHECK_THAT(read_file(run.path("given") + "/config.resolved.json"),
             Catch::Contains("\"group\": 4"));
}

// Groups set the order of sums, whether codecs sit on them or not.
TEST_CASE("a run that goes on keeps its groups, whatever it compresses now") {
  const TrainingRun run;
  const std::string codec =
      R"(compress={"policy": "all", "data_gradient": {"codec": "quantize", "bits": 8}})";
  const std::string strategy = "parallel.data_strategy=replicate";
  train(run, "coded", {links(run, 1e8), strategy, codec});
  train(run, "plain", {links(run, 1e8), strategy});
  const auto rest = [&](const std::string& of, const std::vector<std::string>& settings) {
    std::vector<std::string> all = settings;
    all.push_back(links(run, 1e8));
    all.push_back(strategy);
    all.push_back("checkpoint.resume_from=" + run.checkpoint(2, of));
    return train(run, of + "-rest", all);
  };
  CHECK_THAT(rest("coded", {}).error, Catch::Contains("parallel.group: 2 is kept from "));
  CHECK_THAT(rest("plain", {codec}).error, Catch::Contains("parallel.group: 4 is kept from "));
  std::filesystem::remove_all(run.path("coded-rest"));
  CHECK_THAT(rest("coded", {codec}).error, !Catch::Contains("is kept from"));
  CHECK(run.weights_sha256(run.checkpoint(4, "coded-rest")) ==
        run.weights_sha256(run.checkpoint(4, "coded")));
}

TEST_CASE("a size of groups that is given counts, whatever strategy is kept") {
  const TrainingRun run;
  static_cast<void>(train(run, "whole", {links(run, 1e8), "parallel.group=2"}));
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(2, "whole");
  static_cast<void>(train(run, "given", {links(run, 1e8), from, "parallel.group=1"}));
  CHECK_THAT(read_file(run.path("given") + "/config.resolved.json"),
             Catch::Contains("\"group\": 1"));
}

// What a manifest says of the layout is a hint: a damaged one is as if it were not there.
TEST_CASE("a layout that makes no sense is not kept") {
  const TrainingRun run;
  static_cast<void>(train(run, "whole", {links(run, 1e8)}));
  const std::string checkpoint = run.checkpoint(2, "whole");
  const std::string text = read_file(checkpoint + "/manifest.json");
  nlohmann::ordered_json whole = nlohmann::ordered_json::parse(text);
  whole.erase("xxh3");  // of the text before
  const std::vector<std::pair<const char*, nlohmann::ordered_json>> damages = {
      {"data_strategy", 7},
      {"data_strategy", "GGN"},
      {"micro", "four"},
      {"micro", 3},
      {"group", 3},
      {"group", nullptr}};
  for (const auto& [key, value] : damages) {
    INFO(key << " " << value.dump());
    nlohmann::ordered_json damaged = whole;
    damaged["layout"][key] = value;
    write_file_atomically(checkpoint + "/manifest.json", damaged.dump());
    std::filesystem::remove_all(run.path("next"));
    CHECK_THAT(
        decision(train(run, "next", {links(run, 1e8), "checkpoint.resume_from=" + checkpoint})),
        Catch::EndsWith(" is chosen"));
  }
}

TEST_CASE("a run that goes on with other ranks decides anew") {
  const TrainingRun run;
  static_cast<void>(train(run, "whole", {links(run, 1e8)}));
  const std::string from = "checkpoint.resume_from=" + run.checkpoint(2, "whole");
  const ProcessResult other = require_done(run.train({"run.dir=" + run.path("other"),
                                                      "parallel.data=2",
                                                      "parallel.data_strategy=auto",
                                                      "batch.global=16",
                                                      "run.steps=4",
                                                      from},
                                                     {"--ranks", "2"}));
  CHECK_THAT(decision(other), Catch::EndsWith(" is chosen"));
}

}  // namespace slackline
