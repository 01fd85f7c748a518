// Settings that a config leaves open: decided once, kept in checkpoints, written down with the run.

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/file_io.h"
#include "tests/support/catch.h"
#include "tests/tools/training_run.h"

namespace slackline {

using Catch::Contains;
using Json = nlohmann::ordered_json;

namespace {

Json resolved_config(const TrainingRun& run, const std::string& directory = "run") {
  return Json::parse(read_file(run.path(directory) + "/config.resolved.json"));
}

// Takes from a checkpoint what Slackline did not write before it kept settings.
void make_older(const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  Json manifest = Json::parse(read_file(path));
  manifest["data"].erase("settings");
  manifest.erase("xxh3");  // of the text before
  write_file_atomically(path, manifest.dump());
}

}  // namespace

TEST_CASE("tables decay unless the config, or the checkpoint of a silent one, says no") {
  const std::string silent = "optimizer.decay_embeddings=null";
  const TrainingRun run;
  REQUIRE(run.train({silent}).exit_code == 0);
  REQUIRE(run.train({"optimizer.decay_embeddings=true", "run.dir=" + run.path("yes")}).exit_code ==
          0);
  REQUIRE(run.train({"run.dir=" + run.path("no")}).exit_code == 0);
  const std::string no = run.weights_sha256(run.checkpoint(6, "no"));
  REQUIRE(run.weights_sha256(run.checkpoint(6)) == run.weights_sha256(run.checkpoint(6, "yes")));
  REQUIRE(run.weights_sha256(run.checkpoint(6)) != no);
  REQUIRE(resolved_config(run)["optimizer"]["decay_embeddings"] == true);

  const bool older = GENERATE(false, true);
  INFO("older " << older);
  std::filesystem::remove_all(run.checkpoint(6, "no"));
  if (older) {
    make_older(run.checkpoint(3, "no"));
  }
  const ProcessResult resumed = run.train({silent, "run.dir=" + run.path("no")}, {"--resume"});
  INFO(resumed.error);
  REQUIRE(resumed.exit_code == 0);
  REQUIRE((resumed.error.find("optimizer.decay_embeddings = false") != std::string::npos) == older);
  REQUIRE(run.weights_sha256(run.checkpoint(6, "no")) == no);
  REQUIRE(resolved_config(run, "no")["optimizer"]["decay_embeddings"] == false);
}

TEST_CASE("a resume may turn the decay of tables on, also of an older checkpoint") {
  const TrainingRun run;
  REQUIRE(run.train().exit_code == 0);
  const std::string no = run.weights_sha256(run.checkpoint(6));
  std::filesystem::remove_all(run.checkpoint(6));
  make_older(run.checkpoint(3));
  REQUIRE(run.train({"optimizer.decay_embeddings=true"}, {"--resume"}).exit_code == 0);
  REQUIRE(run.weights_sha256(run.checkpoint(6)) != no);
}

}  // namespace slackline
